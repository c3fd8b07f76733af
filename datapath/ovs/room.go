package ovs

import (
	"time"

	"golang.org/x/sys/unix"
)

// room is how many bytes of packets may wait at a device until ovs-vswitchd reads them; the kernel
// doubles it, and counts some 800 bytes even for the smallest packet.
const room = 1 << 20

// makeRoom lets more packets wait at the devices that ovs-vswitchd reads in user space. The
// kernel's default of 208 KiB holds 256 small packets: on a busy machine ovs-vswitchd may not run
// for a second, and a host of a large lab can get more packets to answer than that meanwhile. Only
// packets that actually wait take memory. If the kernel does not allow duplicating sockets, nothing
// changes. A device that is made anew has the kernel's default until the next Apply. sends says
// whether the socket through which ovs-vswitchd sends exists yet.
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

// sendRoom is how many bytes of packets may wait in the queues of all devices together; each device
// has its own limit. ovs-vswitchd sends through one socket, and the kernel's default of 208 KiB is
// used up once a single link's queue is full: packets to all other devices would then be dropped.
const sendRoom = 512 << 20

// makeRoomToSend waits until ovs-vswitchd has sent something: before that, it has no socket to send
// through.
func (s *Switches) makeRoomToSend() {
	for wait := 10 * time.Millisecond; s.vswitch.pid() != 0 && !s.vswitch.makeRoom(); wait = min(2*wait,
		10*time.Second) {
		time.Sleep(wait)
	}
}
