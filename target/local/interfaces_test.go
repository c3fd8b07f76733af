package local

import (
	"testing"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/topology"
)

// TestInterfaceKinds proves that each kind of interfaces that files have a word for can be made, or
// is said to be lacking: that there is what the kernel is asked for, and what its module is called.
func TestInterfaceKinds(t *testing.T) {
	for _, k := range topology.InterfaceKinds {
		if is := interfaceKinds[k.Name]; is.device == nil || is.module == "" {
			t.Errorf("nothing makes %s", k.Is)
		}
	}
	if len(interfaceKinds) != len(topology.InterfaceKinds) {
		t.Errorf("%d kinds are made, and %d can be asked for", len(interfaceKinds), len(topology.InterfaceKinds))
	}
}

// TestKernelMakes proves that the kernel is asked for kinds of devices: one that every kernel of a
// lab has is there, also if it wants to be told more than its kind, and one that none has is not.
func TestKernelMakes(t *testing.T) {
	ns, err := inside.New()
	if err != nil {
		t.Skip("needs root: ", err)
	}
	defer ns.Close()
	for kind, want := range map[string]bool{"bridge": true, "vxlan": true, "veth": true, "trivet": false} {
		err := inside.File(ns, func() error {
			has, err := kernelMakes(kind)
			if has != want {
				t.Errorf("%s: the kernel makes it: %v", kind, has)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
