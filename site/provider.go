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

// A Provider makes the machines of a list for a lab, and removes them afterwards: a cloud. Each has
// a package of its own, and a Source that reads its options.
type Provider struct {
	Word string // in files: openstack

	// Open logs the user in to the provider. It changes nothing.
	Open func(ctx context.Context, u *User, o json.RawMessage) (Account, error)

	// Schema is the JSON Schema (draft 2020-12) of the value of Word in a file.
	Schema map[string]any
}

// An Account is a user's account with a provider.
type Account interface {
	// Check reports everything that is wrong with a list: what does not exist, what exceeds a
	// quota. It changes nothing.
	Check(ctx context.Context, l *List) error

	// Make makes the machines of a list, adds to the list how to reach them and their properties,
	// and waits until the user can log in. Everything it makes can be found by the allocation's key
	// at any time, even if Make fails.
	Make(ctx context.Context, l *List, a Allocation, say func(string)) error

	// Remove removes everything made for a key, and returns the number of things removed.
	Remove(ctx context.Context, key string, say func(string)) (int, error)

	// Allocations lists what this account has of any lab.
	Allocations(ctx context.Context) ([]Allocation, error)
}

// Allocation is what a provider has made for a lab.
type Allocation struct {
	Lab   string         `json:"lab"`
	Key   string         `json:"key"`             // unique
	By    string         `json:"by"`              // user@machine
	Since string         `json:"since"`           // RFC 3339
	Holds map[string]int `json:"holds,omitempty"` // number of things by kind
}

// Provided says which provider makes the machines of a list. It contains no secrets.
type Provided struct {
	By      string          `json:"by"` // the provider's word
	Options json.RawMessage `json:"options"`
	Key     string          `json:"key,omitempty"` // the allocation's, once the machines are made

	// Made describes what each machine was made of (image, flavor), so that others can make the
	// same.
	Made map[string]map[string]string `json:"made,omitempty"`
	// All links between two of these machines are networks of the provider; otherwise only those of
	// hosts that are machines themselves.
	Joins bool    `json:"joins,omitempty"`
	Ports []*Port `json:"ports,omitempty"` // of nodes

	// PortsKey is the key of the ports. Labs that share machines have one each.
	PortsKey string `json:"ports_key,omitempty"`
}

// Has reports whether a key is that of the machines or of the ports.
func (p *Provided) Has(key string) bool { return p != nil && (p.Key == key || p.PortsKey == key) }

var providers = map[string]*Provider{}

// RegisterProvider adds a provider. It must be called in an init function.
func RegisterProvider(p *Provider) { providers[p.Word] = p }

// There returns an error if the machines do not exist yet, for callers that cannot make any.
func (l *List) There() error {
	if l.Provided == nil || l.Provided.Key != "" {
		return nil
	}
	return fmt.Errorf("%s is to make these machines, for a lab or an experiment: name machines that are there already",
		l.Provided.By)
}

// NewAllocation returns an allocation with a new key, in the name of the user on this machine.
func NewAllocation(u *User, lab string) Allocation {
	return Allocation{Lab: lab, Key: newKey(), By: u.here(), Since: time.Now().UTC().Format(time.RFC3339)}
}

func newKey() string { return strings.ToLower(rand.Text()[:16]) }

// here returns USER@HOST, so that people know who made a thing.
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

// Provide makes the provider create a list's machines for an allocation, after checking that the
// wanted ports, which Connect makes, are possible. If that fails, what was made is removed. The
// list gets the allocation's key before anything is requested.
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

// CheckPorts reports everything that is wrong with the wanted ports.
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

// Connect makes the provider create the ports of placed nodes, at the provided machines, under the
// allocation's key or, if it has none, under the machines'.
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

// Await waits until traffic passes the nodes' ports.
func (p *Provided) Await(ctx context.Context, u *User, say func(string)) error {
	account, err := p.Open(ctx, u)
	if err != nil {
		return err
	}
	return account.(Networks).AwaitPorts(ctx, p.PortsKey, say)
}

// Remove makes the provider remove everything it has made for a lab. It carries on even if ctx
// ends: what is left may cost as much as all of it.
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

// Open logs the user in to the provider of a list's machines.
func (p *Provided) Open(ctx context.Context, u *User) (Account, error) {
	by := providers[p.By]
	if by == nil {
		return nil, fmt.Errorf("this program knows no provider %s; it knows %s", p.By,
			strings.Join(slices.Sorted(maps.Keys(providers)), ", "))
	}
	return by.Open(ctx, u, p.Options)
}
