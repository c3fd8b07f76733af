package sites

import (
	"fmt"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/segment"
	"trivet.dev/trivet/target/local"
)

// port is the switch port of a device, as calls between it and the gateway show it.
type port struct {
	name    string
	vlan    uint16          // that the device should receive
	down    []segment.Heard // received from the gateway
	up      []segment.Heard // received by the gateway
	guarded bool            // it is in a lab, and sends no calls
	silent  bool            // nobody could listen there
}

// Sizes of calls: one that gets through if anything does, and a full frame.
const smallCall, fullCall = 64, local.MTU

// callsOn returns the calls to send on some VLANs.
func callsOn(number uint64, from uint16, vlans []uint16) (out []segment.Call) {
	for _, v := range vlans {
		for _, size := range []uint16{smallCall, fullCall} {
			out = append(out, segment.Call{Number: number, From: from, VLAN: v, Size: size})
		}
	}
	return out
}

// got says whether calls on a VLAN have arrived, and with which tag: with their own if any did.
func got(heard []segment.Heard, vlan, size uint16) (as uint16, ok bool) {
	for _, h := range heard {
		if h.VLAN == vlan && h.Size == size {
			if ok = true; h.As == vlan {
				return vlan, true
			}
			as = h.As
		}
	}
	return as, ok
}

// through says whether a VLAN arrives as it should.
func (p *port) through(vlan uint16) bool {
	as, ok := got(p.down, vlan, smallCall)
	return ok && as == vlan
}

// portFinding says whether a device's VLAN arrives at it, and only there if the switch separates
// its ports; if not, what is wrong with the switch port.
func portFinding(p *port, all []*port) local.Finding {
	f := local.Finding{What: fmt.Sprintf("VLAN %d", p.vlan), Needed: true}
	fail := func(says, cure string) local.Finding {
		f.Says, f.Cure = says, cure
		return f
	}
	as, arrives := got(p.down, p.vlan, smallCall)
	_, full := got(p.down, p.vlan, fullCall)
	_, back := got(p.up, p.vlan, smallCall)
	_, fullBack := got(p.up, p.vlan, fullCall)
	tagged := fmt.Sprintf("make its port of the switch a member of VLAN %d, tagged, and leave the management network untagged there", p.vlan)
	switch swapped := p.swapped(all); {
	case p.silent:
		f.Unknown, f.OK, f.Says = true, true, "not tried: nobody listens there"
		return f
	case arrives && as == segment.Untagged:
		return fail(fmt.Sprintf("VLAN %d arrives without its tag", p.vlan), tagged)
	case arrives && as != p.vlan:
		return fail(fmt.Sprintf("VLAN %d arrives as VLAN %d", p.vlan, as),
			"the switch translates it (VLAN mapping): end that at its port")
	case !arrives && swapped != nil:
		return fail(fmt.Sprintf("%s and %s are swapped: VLAN %d arrives at %[2]s, and VLAN %[4]d at %[1]s", p.name,
			swapped.name, p.vlan, swapped.vlan),
			fmt.Sprintf("exchange their cables at the switch, or write  vlan: %d  for %s and  vlan: %d  for %s",
				swapped.vlan, p.name, p.vlan, swapped.name))
	case !arrives:
		return fail(fmt.Sprintf("VLAN %d does not arrive; %s", p.vlan, p.otherwise(all)), tagged)
	case !full:
		return fail(fmt.Sprintf("VLAN %d arrives, but not its packets of %d bytes", p.vlan, fullCall),
			"the switch takes a tag for a part of the packet: allow frames of 1,522 bytes there (its MTU, or jumbo frames), or take another one")
	case p.guarded:
		f.OK, f.Says = true, "arrives, tagged; what the device sends was not tried: it is in a lab"
		return f
	case !back:
		return fail(fmt.Sprintf("VLAN %d arrives at the device, but what it sends there does not arrive at the gateway",
			p.vlan), tagged+"; the same at the gateway's port")
	case !fullBack:
		return fail(fmt.Sprintf("VLAN %d arrives, but not packets of %d bytes from the device", p.vlan, fullCall),
			"allow frames of 1,522 bytes at its port")
	}
	f.OK, f.Says = true, fmt.Sprintf("arrives both ways, tagged, packets of %d bytes too", fullCall)
	return f
}

// swapped returns the device with which a device has been swapped, that is if each receives the
// other's VLAN and not its own.
func (p *port) swapped(all []*port) *port {
	i := slices.IndexFunc(all, func(o *port) bool {
		return o != p && o.vlan != p.vlan && p.through(o.vlan) && o.through(p.vlan) && !o.through(o.vlan)
	})
	if i < 0 {
		return nil
	}
	return all[i]
}

// otherwise says which VLANs do arrive at a device, and who receives its VLAN.
func (p *port) otherwise(all []*port) string {
	var arrive, owners []string
	for _, h := range p.down {
		if v := vlanName(h.VLAN); h.Size == smallCall && h.As == h.VLAN && !slices.Contains(arrive, v) {
			arrive = append(arrive, v)
		}
	}
	for _, o := range all {
		if o != p && o.through(p.vlan) {
			owners = append(owners, o.name)
		}
	}
	says := "nothing else does either"
	if len(arrive) > 0 {
		says = "its port lets through " + listed(arrive) + " only"
	}
	if len(owners) > 0 {
		says += "; it arrives at " + listed(owners)
	}
	return says
}

// listed joins names, of which it shows only the first few.
func listed(names []string) string {
	const most = 4
	if len(names) > most {
		names = append(slices.Clone(names[:most]), fmt.Sprintf("%d more", len(names)-most))
	}
	return strings.Join(names, ", ")
}

func vlanName(id uint16) string {
	if id == segment.Untagged {
		return "VLAN 1 (untagged)"
	}
	return fmt.Sprintf("VLAN %d", id)
}

// trunkFinding says whether any tagged frames leave the gateway.
func trunkFinding(nic string, ports []*port) (f local.Finding, tried bool) {
	f = local.Finding{What: "trunk", Needed: true, OK: true, Says: "VLANs get from " + nic + " through the switch"}
	any := false
	for _, p := range ports {
		tried = tried || !p.silent
		any = any || slices.ContainsFunc(p.down, func(h segment.Heard) bool { return h.VLAN != segment.Untagged })
	}
	if tried && !any {
		f.OK, f.Says = false, "no VLAN arrives at any device"
		f.Cure = "make the gateway's port of the switch (" + nic +
			") a trunk: a tagged member of the VLANs of all devices; a switch that drops tags cannot serve"
	}
	return f, tried
}
