package ovs

import (
	"time"

	"golang.org/x/sys/unix"
)

// room is how many bytes of packets may wait at a device until ovs-vswitchd reads them; the kernel
// doubles it, and counts some 800 bytes for the smallest packet.
const room = 1 << 20

// makeRoom lets more packets wait at the devices that ovs-vswitchd reads in user space. The
// kernel's own 208 KiB are 256 small packets: on a busy machine ovs-vswitchd may not run for a
// second, and what a host of a large lab gets to answer in that time is more. Nothing but the
// packets that wait takes memory. Where the kernel lets nobody take copies of sockets, all stays as
// it was. A device that is made anew has the kernel's room until the next Apply. sends says whether
// the socket by which ovs-vswitchd sends is there, too.
func (d *daemon) makeRoom() (sends bool) {
	pid := d.pid()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if d.pid() != pid {
		return false
	}
	sockets := packetSockets(fd, pid)
	defer closeAll(sockets)
	for _, s := range sockets {
		_ = unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room)
		if a, err := unix.Getsockname(s); err == nil {
			if l, ok := a.(*unix.SockaddrLinklayer); ok && l.Ifindex == 0 { // the others are bound to their devices
				sends = unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendRoom) == nil || sends
			}
		}
	}
	return sends
}

// sendRoom is how many bytes of packets may wait in the queues of all devices together: these have
// limits of their own. ovs-vswitchd sends by one socket, and the kernel's 208 KiB for that are full
// when one link's queue is: then packets to all other devices would be dropped.
const sendRoom = 512 << 20

// makeRoomToSend waits until ovs-vswitchd has sent something, before which it has no socket for
// that.
func (s *Switches) makeRoomToSend() {
	for wait := 10 * time.Millisecond; s.vswitch.pid() != 0 && !s.vswitch.makeRoom(); wait = min(2*wait, 10*time.Second) {
		time.Sleep(wait)
	}
}
