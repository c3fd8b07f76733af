// Package delayline impairs links in user space, for kernels that have no netem.
//
// Both ends of a link are TAP devices. What one end sends is read from its file
// descriptor, held as a slow, long, lossy wire would hold it, and written to the
// other end's. A frame passes, per direction:
//
//	bandwidth   the sender's queue, emptied at the bandwidth; its limit drops at the tail
//	loss        each packet on its own, after it took its time to send
//	delay       plus jitter; nobody overtakes
//
// Queue is that model alone, with no I/O, so it is tested in simulated time. Engine
// moves frames of many lines on a few threads, which sleep until a frame comes or one is due.
package delayline
