// Package netfacts reads the configuration of a network namespace, and compares readings.
package netfacts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kind is what a fact is about.
type Kind string

// A fact's key is its kind, mostly a device, and a name among those of that kind; its value is the
// rest. Sysctls and offloads of the value 0 are left out.
const (
	Device  Kind = "device"  // value: its kind, and of which device it is a part
	MAC     Kind = "mac"     // of a device
	MTU     Kind = "mtu"     // of a device
	XDP     Kind = "xdp"     // a device has a program of this kind
	Address Kind = "address" // permanent, not link-local; name: with its prefix
	Route   Kind = "route"   // added by hand: see Path
	// MPLS routes added by hand; name: the label, value: the action, in the syntax of ip-route(8).
	Label     Kind = "label"
	Rule      Kind = "rule"      // of routing; name: family, priority and selectors
	Neighbour Kind = "neighbour" // permanent; name: address, value: MAC
	Port      Kind = "port"      // a bridge port's setting that is not the default; name: which
	FDB       Kind = "fdb"       // static entry of a bridge; name: MAC
	Sysctl    Kind = "sysctl"    // affecting what is forwarded or answered; of a device or of the namespace
	NFT       Kind = "nft"       // name: table, chain or rule of nf_tables
	Xtables   Kind = "iptables"  // name: table and number of a rule of the older iptables
	Qdisc     Kind = "qdisc"     // not the kernel's default; name: where
	Class     Kind = "class"     // of a queueing discipline; name: its number
	Filter    Kind = "filter"    // of traffic control; name: where, and its number
	Offload   Kind = "offload"   // value: the set of those switched on
	Flow      Kind = "flow"      // an entry of a switch's table, which belongs to no namespace; see target/local
)

// Key names a fact.
type Key struct {
	Kind   Kind   `json:"kind"`
	Device string `json:"device,omitempty"` // or a routing table, or a switch
	Name   string `json:"name,omitempty"`
}

func (k Key) compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Device, o.Device), cmp.Compare(k.Name, o.Name))
}

// Facts are the facts of one namespace.
type Facts map[Key]string

// put adds a fact; values of the same key are joined.
func (f Facts) put(kind Kind, device, name, value string) {
	k := Key{kind, device, name}
	if was, ok := f[k]; ok {
		both := append(strings.Split(was, twice), value)
		slices.Sort(both)
		value = strings.Join(both, twice)
	}
	f[k] = value
}

const twice = " and "

// MarshalJSON writes a compact list of texts.
func (f Facts) MarshalJSON() ([]byte, error) {
	out := make([][4]string, 0, len(f))
	for _, k := range slices.SortedFunc(maps.Keys(f), Key.compare) {
		out = append(out, [4]string{string(k.Kind), k.Device, k.Name, f[k]})
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads MarshalJSON's output.
func (f *Facts) UnmarshalJSON(b []byte) error {
	var list [][4]string
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	*f = make(Facts, len(list))
	for _, x := range list {
		(*f)[Key{Kind(x[0]), x[1], x[2]}] = x[3]
	}
	return nil
}

// Delta is the difference between two readings.
type Delta struct {
	Now  Facts `json:"now,omitempty"`  // those that are new or have another value
	Gone Facts `json:"gone,omitempty"` // those that have disappeared
}

// Since returns the difference to earlier facts.
func (f Facts) Since(was Facts) (d Delta) {
	for k, v := range f {
		if old, ok := was[k]; !ok || old != v {
			if d.Now == nil {
				d.Now = Facts{}
			}
			d.Now[k] = v
		}
	}
	for k, v := range was {
		if _, ok := f[k]; !ok {
			if d.Gone == nil {
				d.Gone = Facts{}
			}
			d.Gone[k] = v
		}
	}
	return d
}

// Empty reports whether nothing has changed.
func (d Delta) Empty() bool { return len(d.Now)+len(d.Gone) == 0 }

// Take applies a difference.
func (f Facts) Take(d Delta) {
	for k := range d.Gone {
		delete(f, k)
	}
	maps.Copy(f, d.Now)
}

// Change is a fact that has changed.
type Change struct {
	Key
	Was string `json:"was,omitempty"`
	Is  string `json:"is,omitempty"`

	New  bool `json:"new,omitempty" doc:"There was none of this key"`
	Gone bool `json:"gone,omitempty" doc:"There is none of this key any more"`
}

// Changes lists what has changed. For a device that is new or gone nothing else is listed, nor a
// device's value of a setting that all devices share.
func Changes(was, is Facts) (out []Change) {
	d := is.Since(was)
	for k, v := range d.Now {
		old, had := was[k]
		out = append(out, Change{Key: k, Was: old, Is: v, New: !had})
	}
	for k, v := range d.Gone {
		out = append(out, Change{Key: k, Was: v, Gone: true})
	}
	implied := func(c Change) bool {
		if c.Device == "" || c.Kind == Route || c.Kind == Label || c.Kind == Rule || c.Kind == Device {
			return false
		}
		_, had := was[Key{Device, c.Device, ""}]
		_, has := is[Key{Device, c.Device, ""}]
		if had != has {
			return c.Kind != Address || had // an address on a foreign device counts nevertheless
		}
		all := Key{Sysctl, "", c.Name}
		return c.Kind == Sysctl && was[all] != is[all] && is[all] == c.Is
	}
	out = slices.DeleteFunc(out, implied)
	slices.SortFunc(out, func(a, b Change) int { return a.compare(b.Key) })
	return out
}

// Said describes a change.
func (c Change) Said() string {
	switch {
	case c.New:
		return c.Is
	case c.Gone:
		return "was " + c.Was
	}
	return fmt.Sprintf("%s, was %s", c.Is, c.Was)
}
