// Package delayline impairs links in user space, for kernels that have no netem.
//
// Both ends of a link are TAP devices. What one end sends is read from its file descriptor, held
// back as a slow, long, lossy wire would, and written to that of the other end. In each direction,
// a frame passes:
//
//	bandwidth   the sender's queue, emptied at the bandwidth; its limit drops at the tail, or a
//	            discipline of active queue management drops and marks (discipline.go)
//	wire        packets are lost, come twice, are damaged, after the time it takes to send them
//	            (wire.go)
//	delay       plus jitter; packets stay in order, but for those that are to overtake others
//
// An end may stand for a device that takes its time for each packet, whichever line it comes over:
// a Server, which several lines share (server.go). Packets then wait for it between the line's
// delay and the other end, and at a device that takes both directions before the sender's queue,
// too.
//
// Queue is just that model, without I/O, so that it can be tested in simulated time. Engine moves
// the frames of many lines on a few threads, which sleep until a frame arrives or one is due.
package delayline
