package ovs

import "golang.org/x/sys/unix"

// room is how many bytes of packets may wait at a device until ovs-vswitchd reads them; the kernel doubles it, and counts some 800 bytes
// for the smallest packet.
const room = 1 << 20

// makeRoom lets more packets wait at the devices that ovs-vswitchd reads in user space. The kernel's own 208 KiB are 256 small packets:
// on a busy machine ovs-vswitchd may not run for a second, and what a host of a large lab gets to answer in that time is more.
// Nothing but the packets that wait takes memory. Where the kernel lets nobody take copies of sockets, all stays as it was.
// A device that is made anew has the kernel's room until the next Apply.
func (d *daemon) makeRoom() {
	pid := d.pid()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if d.pid() != pid {
		return
	}
	sockets := packetSockets(fd, pid)
	defer closeAll(sockets)
	for _, s := range sockets {
		_ = unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room)
	}
}
