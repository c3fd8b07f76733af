package sites

import (
	"errors"
	"net/netip"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/local"
)

// What a lab changes of the machine that is the gateway of a rack, besides its part of the lab.

// bondHere finds which interface has a rack's VLANs if it names several.
func bondHere(list *site.List) (err error) {
	if len(list.Head.Bond) > 0 {
		list.Head.NIC, err = local.Bonded(list.Head.Bond, site.BondName)
	}
	return err
}

// prepareGateway bonds its inner interfaces, and keeps devices that are in use from getting out
// through it, of which labs of other kinds of lists know nothing.
func (l *Lab) prepareGateway() error {
	if l.state.Sites.Head.NIC == site.BondName {
		if err := local.MakeBond(l.state.Name, site.BondName, l.state.Sites.Head.Bond); err != nil {
			return err
		}
	}
	return l.refuseForwarding()
}

// refuseForwarding does so for the devices that are in use now.
func (l *Lab) refuseForwarding() error {
	var from []netip.Addr
	for _, p := range l.used() {
		if p.machine.Hosts > 0 {
			from = append(from, l.record.Addresses[p.machine.Name])
		}
	}
	if len(from) == 0 && !l.record.Refused {
		return nil
	}
	l.record.Refused = true
	if err := l.save(); err != nil {
		return err
	}
	return local.RefuseForwarding(l.state.Name, from)
}

// releaseGateway undoes what prepareGateway did.
func releaseGateway(s lab.State, was record) (err error) {
	if was.Refused {
		err = local.ForwardAgain(s.Name)
	}
	if s.Sites.Head.NIC == site.BondName {
		err = errors.Join(err, local.DropBond(s.Name, site.BondName))
	}
	return err
}
