package delayline

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	tunDevice = "/dev/net/tun"
	tapFlags  = unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR

	// txQueueLen is how many frames the kernel queues for us to read: a sender's burst before our
	// thread wakes up. The kernel's default of 500 is too short at 10 Gbit/s.
	txQueueLen = 4096
)

// OpenTap returns the file descriptor of a TAP device, for Engine.Add. It makes the device in the
// network namespace of the calling thread, or attaches to a persistent one that nobody holds. A
// persistent device stays when the descriptor is closed.
func OpenTap(name string, persist bool) (fd int, err error) {
	fail := func(doing string, err error) (int, error) {
		if fd >= 0 {
			unix.Close(fd)
		}
		return -1, fmt.Errorf("TAP device %s: %s: %w%s", name, doing, err, tapHint(err))
	}
	fd, err = unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fail("open "+tunDevice, err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return fail("name of 1 to 15 bytes", err)
	}
	request.SetUint16(tapFlags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return fail("attach", err)
	}
	keep := 0
	if persist {
		keep = 1
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, keep); err != nil {
		return fail("set persistence", err)
	}
	if err := setTxQueueLen(name); err != nil {
		return fail("set queue length", err)
	}
	return fd, nil
}

func tapHint(err error) string {
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENODEV):
		return "; the kernel needs the tun driver: modprobe tun"
	case errors.Is(err, unix.EBUSY):
		return "; another process holds it"
	case errors.Is(err, unix.EINVAL):
		return "; there is a device of another kind with that name"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return "; run as root"
	}
	return ""
}

func setTxQueueLen(name string) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint32(txQueueLen)
	return unix.IoctlIfreq(socket, unix.SIOCSIFTXQLEN, request)
}

// prepareTap makes sure that the descriptor belongs to a TAP device with the header that we parse,
// makes it non-blocking, and turns the device's carrier on.
func prepareTap(fd int) error {
	request, _ := unix.NewIfreq("")
	if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, request); err != nil {
		return fmt.Errorf("file descriptor %d is not a TAP device: %w; open it with OpenTap", fd, err)
	}
	if request.Uint16()&tapFlags != tapFlags {
		return fmt.Errorf("TAP device %s lacks IFF_NO_PI or IFF_VNET_HDR; open it with OpenTap", request.Name())
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, vnetLen); err != nil {
		return fmt.Errorf("TAP device %s: set header size: %w", request.Name(), err)
	}
	if err := setCarrier(fd, true); err != nil {
		return fmt.Errorf("TAP device %s: set carrier: %w", request.Name(), err)
	}
	return unix.SetNonblock(fd, true)
}

// setCarrier makes the device look plugged in or unplugged.
func setCarrier(fd int, on bool) error {
	value := 0
	if on {
		value = 1
	}
	return unix.IoctlSetPointerInt(fd, unix.TUNSETCARRIER, value)
}

// setOffload sets whether the device may pass us super-packets and partial checksums.
func setOffload(fd int, on bool) error {
	if !on {
		return unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, 0)
	}
	const tcp = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	const udp = unix.TUN_F_USO4 | unix.TUN_F_USO6 // Linux 6.2
	err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tcp|udp)
	if errors.Is(err, unix.EINVAL) {
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tcp)
	}
	return err
}

// overrun returns how many packets the kernel dropped because they were not read in time, or
// because nothing was attached to the device. It looks in the device's namespace, wherever that is.
func overrun(fd int) (packets uint64, err error) {
	request, _ := unix.NewIfreq("")
	if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, request); err != nil {
		return 0, err
	}
	space, err := unix.IoctlRetInt(fd, unix.TUNGETDEVNETNS)
	if err != nil {
		return 0, err
	}
	defer unix.Close(space)
	handle, err := netlink.NewHandleAt(netns.NsHandle(space), unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	defer handle.Close()
	link, err := handle.LinkByName(request.Name())
	if err != nil {
		return 0, err
	}
	if s := link.Attrs().Statistics; s != nil {
		packets = s.TxDropped
	}
	return packets, nil
}
