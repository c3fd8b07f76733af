package local

import (
	"context"
	"os"
	"slices"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/topology"
)

// fabric is what one kind of datapath has in a lab.
type fabric struct {
	*datapath.Kind
	datapath.Fabric
}

// newFabrics returns a fabric of each kind that there is.
func (l *Lab) newFabrics() (out []fabric) {
	kinds := datapath.Kinds()
	for i := range kinds {
		out = append(out, fabric{&kinds[i], kinds[i].New(site{l})})
	}
	return out
}

// all takes a step with all fabrics; after the first that fails it is left.
func (l *Lab) all(step func(datapath.Fabric) error) error {
	for _, f := range l.fabrics {
		if err := step(f.Fabric); err != nil {
			return err
		}
	}
	return nil
}

// resumeFabrics lets those take over who can what another process has made.
func (l *Lab) resumeFabrics(ctx context.Context) error {
	return l.all(func(f datapath.Fabric) error {
		if r, ok := f.(datapath.Resumer); ok {
			return r.Resume(ctx)
		}
		return nil
	})
}

// fabricOf returns the fabric of a node; nil: it has none.
func (l *Lab) fabricOf(n *topology.Node) datapath.Fabric {
	for _, f := range l.fabrics {
		if slices.Contains(f.Names, n.Datapath) {
			return f.Fabric
		}
	}
	return nil
}

// site is a lab as fabrics see it.
type site struct{ *Lab }

func (s site) Node(name string) *topology.Node { return s.node(name) }
func (s site) Namespace() *os.File             { return s.fabric }
func (s site) NewDevice(name string) int       { return s.newIndex(name) }
func (s site) Device(name string) int          { return s.index[name] }
func (s site) ForgetDevice(name string)        { s.forgetDevice(name) }
