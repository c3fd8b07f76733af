package local

import (
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// byHand is what programs in a node have configured on one of its devices. When the link is made
// anew, its new device of the same name gets the same.
type byHand struct {
	node string
	external
}

// lookByHand records it for the nodes' devices that steps make anew, except for what routing
// daemons set, who do so again.
func (l *Lab) lookByHand(s plan.Steps) (out []byHand) {
	anew := map[[2]string]topology.Endpoint{}
	for _, k := range s.AddLinks {
		for _, e := range k.Ends {
			anew[[2]string{e.Node, e.Interface}] = e
		}
	}
	for _, k := range s.DropLinks {
		for i, e := range k.Ends {
			is, stays := anew[[2]string{e.Node, e.Interface}]
			n := l.node(e.Node)
			switch {
			case !stays || e.External() || k.Ends[1-i].External() || !n.Made().Open():
				continue
			case slices.ContainsFunc(s.DropNodes, func(d *topology.Node) bool { return d.Name == e.Node }):
				continue
			case e.Unaddressed && !is.Unaddressed:
				continue // its addresses are the lab's from now on
			}
			x := byHand{e.Node, external{Name: e.Interface, At: time.Now(), InPlace: true}}
			// What cannot be read, because somebody has removed the device, is not restored.
			_ = l.inNet(e.Node, func() (err error) {
				if x.Index, err = indexOf(e.Interface); err != nil {
					return err
				}
				x.Addresses, _ = addressMessages.of(x.Index)
				x.Addresses = slices.DeleteFunc(x.Addresses, func(m []byte) bool {
					return addressMessages.addedByKernel(m) || slices.Contains(e.Addresses, addressOf(m))
				})
				x.Routes, _ = routeMessages.of(x.Index)
				x.Routes = slices.DeleteFunc(x.Routes, func(m []byte) bool { return m[5] != unix.RTPROT_BOOT })
				x.Permanent, err = neighbourMessages.of(x.Index)
				x.Permanent = slices.DeleteFunc(x.Permanent, func(m []byte) bool {
					return slices.ContainsFunc(n.Neighbors, func(own topology.Neighbor) bool {
						return own.Device == e.Interface && own.Address == neighbourOf(m)
					})
				})
				return err
			})
			if len(x.Addresses)+len(x.Routes)+len(x.Permanent) > 0 {
				out = append(out, x)
			}
		}
	}
	return out
}

// addressOf returns the address in a message of the kernel.
func addressOf(m []byte) netip.Prefix {
	a := attributes(m, addressMessages.head)
	ip, ok := a[unix.IFA_LOCAL]
	if !ok {
		ip = a[unix.IFA_ADDRESS]
	}
	address, _ := netip.AddrFromSlice(ip)
	return netip.PrefixFrom(address, int(m[1]))
}

// neighbourOf returns the address of the neighbour in a message of the kernel.
func neighbourOf(m []byte) netip.Addr {
	address, _ := netip.AddrFromSlice(attributes(m, neighbourMessages.head)[unix.NDA_DST])
	return address
}

// giveByHand restores it on the new devices, except for what does not fit the changed lab, which
// the kernel would have removed.
func (l *Lab) giveByHand(all []byHand) {
	for _, x := range all {
		_ = l.inNet(x.node, func() error {
			index, err := indexOf(x.Name)
			if err != nil {
				return err
			}
			tooLate := func(string, error) {}
			x.restoreAll(addressMessages, x.Addresses, index, tooLate)
			x.restoreAll(neighbourMessages, x.Permanent, index, tooLate)
			x.restoreAll(routeMessages, x.Routes, index, tooLate)
			return nil
		})
	}
}
