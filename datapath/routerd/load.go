package routerd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/topology"
)

// A Loading is how a router's own configuration gets into its running programs, where they do not
// read it by themselves: FRR's. They start without any, and the client, as their user and without
// rights of root's, loads it into them: in what somebody else has written there may be more than
// settings.
type Loading struct {
	Router string   `json:"router"`
	Client []string `json:"client"` // a command that arguments are added to
	// Change is a command of this machine that has running programs take over what differs; nil if
	// it is not installed.
	Change []string `json:"change,omitempty"`
	// Gives are the addresses that it gives to devices, by their names.
	Gives map[string][]netip.Prefix `json:"gives,omitempty"`
}

// Loading returns how a router's own configuration is loaded; nil if its programs read it.
func (f *Family) Loading(n *topology.Node) *Loading {
	if f != frr || n.OwnRouting() != topology.FRR {
		return nil
	}
	l := &Loading{Router: n.Name, Client: append([]string{filepath.Join(f.Home, "."+f.Client)}, f.ClientArgs...),
		Gives: n.DaemonAddresses()}
	if path, err := f.Path("frr-reload.py"); err == nil {
		l.Change = []string{path, "--reload", "--stdout", "--confdir", f.Home, "--rundir", f.run(""), "--vty_socket",
			f.run(""),
			filepath.Join(f.Home, FRRFile)}
	}
	return l
}

// A Place is where the programs of a router run: its namespaces, or a virtual machine.
type Place interface {
	// Write writes a program's files, which are below Home, where they differ from what is there.
	Write(files map[string]string) (changed bool, err error)
	// Start ends the programs that are not among these, starts those that do not run as they are
	// to, or all, and returns their names once they answer.
	Start(programs []Program, all bool) (started []string, err error)
	// Run runs a command as the user of the programs, and returns what it has said when it has
	// ended. If it fails, the error is a *Failure.
	Run(ctx context.Context, command []string) (said string, err error)
	// Free takes the addresses from devices that an old configuration ("": none) gave them and
	// nothing does now: FRR leaves them when it ends, and then takes them for the kernel's own.
	Free(old string) error

	// Old is the configuration whose files are there; "": there are none.
	Old() string
	// Loaded says whether something was noted last, and not that it is forgotten: what runs when a
	// configuration has just been loaded. What differs later was changed by hand.
	Loaded() bool
	Note(shown string) error
	Forget()
}

// A Failure is that a command has failed.
type Failure struct {
	Program string
	Said    string
	Err     error
}

func (f *Failure) Error() string {
	text := strings.TrimSpace(f.Said)
	return fmt.Sprintf("%s: %v: %s", f.Program, f.Err, text[strings.LastIndexByte(text, '\n')+1:])
}

func (f *Failure) Unwrap() error { return f.Err }

// Into has the programs of a router run at their place, and loads its own configuration into those
// that do not have it yet.
func (l *Loading) Into(ctx context.Context, p Place, programs []Program) error {
	fresh, old := !p.Loaded(), p.Old() // fresh: they have another configuration, or none
	changed := false
	for _, want := range programs {
		rewritten, err := p.Write(want.Files)
		if err != nil {
			return err
		}
		changed = changed || rewritten
	}
	if changed { // until it is loaded, so that a start of all is next if that fails or this process ends
		p.Forget()
	}
	started, err := p.Start(programs, fresh || changed && l.Change == nil)
	if err != nil {
		return err
	}
	loads := changed || len(started) > 0
	if loads {
		p.Forget()
	}
	if len(started) < len(programs) {
		for _, name := range started {
			_, failed := l.client(ctx, p, "-d", name, "-b")
			err = errors.Join(err, failed)
		}
		if err == nil && changed {
			_, err = p.Run(ctx, l.Change)
		}
		if err != nil { // it may be that only a start can change what differs
			slog.Info("routing daemons are started anew, as they cannot be changed as they run", "router", l.Router,
				"error", err)
			started, err = p.Start(programs, true)
		}
	}
	if err == nil && len(started) == len(programs) {
		if err = p.Free(old); err == nil {
			_, err = l.client(ctx, p, "-b")
		}
	}
	if err != nil || !loads {
		return err
	}
	shown, err := l.Shown(ctx, p)
	if err != nil {
		return err
	}
	return p.Note(shown)
}

func (l *Loading) client(ctx context.Context, p Place, args ...string) (string, error) {
	return p.Run(ctx, slices.Concat(l.Client, args))
}

// Shown is what the client says of what runs, for Running.
func (l *Loading) Shown(ctx context.Context, p Place) (string, error) {
	return l.client(ctx, p, "-c", "show running-config")
}

// FreeAddresses takes from devices, in the thread's network, the addresses that an old
// configuration gave them, but for those that they have now. Devices that are not in given are left
// alone, and addresses that are gone are not missed.
func FreeAddresses(old string, given map[string][]netip.Prefix) error {
	was := &topology.Node{Config: []topology.ConfigFile{{Kind: topology.ConfigFRR,
		TextFile: topology.TextFile{Text: old}}}}
	var errs []error
	for device, addresses := range was.DaemonAddresses() {
		stays, ours := given[device]
		addresses = slices.DeleteFunc(addresses, func(p netip.Prefix) bool { return slices.Contains(stays, p) })
		if ours && len(addresses) > 0 {
			errs = append(errs, takeFrom(device, addresses))
		}
	}
	return errors.Join(errs...)
}

func takeFrom(device string, addresses []netip.Prefix) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find %s: %w", device, err)
	}
	b, err := netbatch.New()
	if err != nil {
		return err
	}
	defer b.Close()
	var errs []error
	for _, p := range addresses {
		b.DelAddress(link.Attrs().Index, p)
		if err := b.Flush(); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			errs = append(errs, fmt.Errorf("%s: %w", device, err))
		}
	}
	return errors.Join(errs...)
}

// added are lines that Trivet has added to a configuration.
var added = []string{noNextHopObjects, integrated}

// integrated is the setting of vtysh that the daemons have one configuration.
const integrated = "service integrated-vtysh-config"

// Running is a configuration as FRR shows it, without what is said around it, and without what
// Trivet itself has added and was does not have.
func Running(shown, was string) string {
	var b strings.Builder
	begun := false
	for line := range strings.Lines(shown) {
		plain := strings.TrimRight(line, "\r\n")
		switch {
		case !begun && !strings.HasPrefix(plain, "frr version"):
			continue
		case plain == "end":
			return b.String()
		case slices.Contains(added, plain) && !hasLine(was, plain):
			begun = true
			continue
		}
		begun = true
		fmt.Fprintln(&b, plain)
	}
	return b.String()
}

// Environment is that of commands that Place.Run runs.
var Environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}
