package sites

import (
	"errors"
	"net/netip"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/local"
)

// What a lab changes on the gateway of a rack, besides its part of the lab.

// bondHere resolves a rack's VLAN interface on this machine, if the list names several interfaces.
func bondHere(list *site.List) (err error) {
	if len(list.Head.Bond) > 0 {
		list.Head.NIC, err = local.Bonded(list.Head.Bond, site.BondName)
	}
	return err
}

// prepareGateway bonds the gateway's inner interfaces, and keeps devices in use from reaching other
// networks through it. It does nothing for lists that are not racks.
func (l *Lab) prepareGateway() error {
	if l.state.Sites.Head.NIC == site.BondName {
		if err := local.MakeBond(l.state.Name, site.BondName, l.state.Sites.Head.Bond); err != nil {
			return err
		}
	}
	return l.refuseForwarding()
}

// refuseForwarding updates the latter for the devices that are in use now. Instances of a provider
// do not have this machine as their gateway.
func (l *Lab) refuseForwarding() error {
	if l.state.Sites.Provided != nil {
		return nil
	}
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
