package packetin

import "github.com/vishvananda/netlink"

// raiseLoopback takes the loopback device of the calling thread's namespace up.
func raiseLoopback() error {
	h, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	return h.LinkSetUp(lo)
}
