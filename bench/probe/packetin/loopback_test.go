package packetin

import "github.com/vishvananda/netlink"

// setLoopback takes the loopback device of the calling thread's namespace up or down.
func setLoopback(up bool) error {
	h, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	if !up {
		return h.LinkSetDown(lo)
	}
	return h.LinkSetUp(lo)
}
