package site

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Provider makes the machines of a list for a lab, and removes them after it: a cloud. Each has a
// package of its own, and a source that reads what it is asked for.
type Provider struct {
	Word string // as in a file: openstack

	// Open lets the user in at the provider. It changes nothing.
	Open func(ctx context.Context, u *User, o json.RawMessage) (Account, error)

	// Schema is the JSON Schema (draft 2020-12) of what a file says under the word.
	Schema map[string]any
}

// An Account is a user's with a provider.
type Account interface {
	// Check says all that is wrong with what a list asks for: what is not there, what exceeds a
	// quota. It changes nothing.
	Check(ctx context.Context, l *List) error

	// Make makes the machines of a list, adds to the list how they are reached and what they are,
	// and waits until they let the user in. Whatever it makes can be found by the key at any time,
	// also if Make fails.
	Make(ctx context.Context, l *List, a Allocation, say func(string)) error

	// Remove removes all that was made for a key, and returns how many things that were.
	Remove(ctx context.Context, key string, say func(string)) (int, error)

	// Allocations lists what there is of all labs in this account.
	Allocations(ctx context.Context) ([]Allocation, error)
}

// Allocation is what a provider has made for a lab.
type Allocation struct {
	Lab   string         `json:"lab"`
	Key   string         `json:"key"`             // no other allocation has it
	By    string         `json:"by"`              // user@machine
	Since string         `json:"since"`           // RFC 3339
	Holds map[string]int `json:"holds,omitempty"` // how many of each kind of thing
}

// Provided says of a list whose its machines are. There is no secret in it.
type Provided struct {
	By      string          `json:"by"` // the word of the provider
	Options json.RawMessage `json:"options"`
	Key     string          `json:"key,omitempty"` // of the allocation, once the machines are made

	// Made is what each machine became, for whoever wants the same: its image, its flavor.
	Made map[string]map[string]string `json:"made,omitempty"`
	// Links between two of the machines are networks of the provider.
	Joins bool    `json:"joins,omitempty"`
	Ports []*Port `json:"ports,omitempty"` // that nodes have

	// PortsKey is the key of the ports, which of labs that share machines is the lab's own.
	PortsKey string `json:"ports_key,omitempty"`
}

// Has says whether a key is that of the machines, or of ports.
func (p *Provided) Has(key string) bool { return p != nil && (p.Key == key || p.PortsKey == key) }

var providers = map[string]*Provider{}

// RegisterProvider makes a provider known. It must be called in an init function.
func RegisterProvider(p *Provider) { providers[p.Word] = p }

// There says that a list's machines are none that are there already, which whoever can make none
// needs.
func (l *List) There() error {
	if l.Provided == nil || l.Provided.Key != "" {
		return nil
	}
	return fmt.Errorf("%s is to make these machines, for a lab or an experiment: name machines that are there already",
		l.Provided.By)
}

// NewAllocation is one that a user asks for on this machine, with a key of its own.
func NewAllocation(u *User, lab string) Allocation {
	return Allocation{Lab: lab, Key: newKey(), By: u.here(), Since: time.Now().UTC().Format(time.RFC3339)}
}

func newKey() string { return strings.ToLower(rand.Text()[:16]) }

// here is the user, and this machine, for whoever finds what was made.
func (u *User) here() string {
	name, host := strconv.Itoa(u.uid), "?"
	if known, err := user.LookupId(name); err == nil {
		name = known.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return strings.Join(strings.Fields(name+"@"+host), "")
}

// Provide has the provider make a list's machines for an allocation, and looks whether the nodes of
// its lab can have the ports that are wanted, which Connect makes. What it has made of an attempt
// that fails is removed. The list has the allocation's key from when something was asked for.
func (l *List) Provide(ctx context.Context, u *User, a Allocation, want []*Port, say func(string)) error {
	account, err := l.Provided.Open(ctx, u)
	if err != nil {
		return err
	}
	if err := errors.Join(account.Check(ctx, l), CheckPorts(ctx, account, l, want)); err != nil {
		return fmt.Errorf("%w\nnothing was made", err)
	}
	a.Key = cmp.Or(a.Key, newKey())
	l.Provided.Key = a.Key
	if err := account.Make(ctx, l, a, say); err != nil {
		_, left := l.Provided.Remove(ctx, u, say)
		return errors.Join(err, left)
	}
	return nil
}

// CheckPorts says all that is wrong with ports that nodes are to have in networks.
func CheckPorts(ctx context.Context, account Account, l *List, want []*Port) error {
	if len(want) == 0 {
		return nil
	}
	networks, ok := account.(Networks)
	if !ok {
		return fmt.Errorf("link %s: %s has no networks", want[0].Link, l.Provided.By)
	}
	return networks.CheckPorts(ctx, l, want)
}

// Connect has the provider make the ports of nodes that have been placed, at the machines that it
// has provided, under the allocation's key or, if that has none, that of the machines.
func (l *List) Connect(ctx context.Context, u *User, a Allocation, want []*Port, say func(string)) error {
	account, err := l.Provided.Open(ctx, u)
	if err != nil {
		return err
	}
	a.Key = cmp.Or(a.Key, l.Provided.Key)
	if err := account.(Networks).MakePorts(ctx, l, a, want, say); err != nil {
		return err
	}
	l.Provided.Ports, l.Provided.PortsKey = want, a.Key
	return nil
}

// Await waits until packets pass the ports of nodes.
func (p *Provided) Await(ctx context.Context, u *User, say func(string)) error {
	account, err := p.Open(ctx, u)
	if err != nil {
		return err
	}
	return account.(Networks).AwaitPorts(ctx, p.PortsKey, say)
}

// Remove has the provider remove what it has made for a lab, also if ctx ends meanwhile: half of it
// may cost as much as all.
func (p *Provided) Remove(ctx context.Context, u *User, say func(string)) (n int, err error) {
	ctx = context.WithoutCancel(ctx)
	account, err := p.Open(ctx, u)
	if err == nil {
		n, err = account.Remove(ctx, p.Key, say)
	}
	if err != nil {
		err = fmt.Errorf("%s: not everything is removed: %w\n  again, and what is there:  trivet down --on %s --key %s,  trivet ls --on %s", p.By, err, p.By, p.Key, p.By)
	}
	return n, err
}

// Open lets the user in at the provider of a list's machines.
func (p *Provided) Open(ctx context.Context, u *User) (Account, error) {
	by := providers[p.By]
	if by == nil {
		return nil, fmt.Errorf("this program knows no provider %s; it knows %s", p.By,
			strings.Join(slices.Sorted(maps.Keys(providers)), ", "))
	}
	return by.Open(ctx, u, p.Options)
}
