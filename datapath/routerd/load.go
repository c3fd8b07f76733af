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

// A Loading says how a router's own configuration gets into its running programs if they do not
// read it by themselves, as FRR's do not. They start without one, and the client loads it as their
// unprivileged user: a stranger's configuration may contain more than settings.
type Loading struct {
	Router string   `json:"router"`
	Client []string `json:"client"` // a command to which arguments are added
	// Change is a command of this machine that makes running programs take over the differences;
	// nil if it is not installed.
	Change []string `json:"change,omitempty"`
	// Gives are the addresses that it sets on devices, by device.
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
	// Write writes those of a program's files, which are below Home, that differ from the existing
	// ones.
	Write(files map[string]string) (changed bool, err error)
	// Start ends the programs that are not among these, starts those that do not run as they
	// should, or all, and returns the names of the started ones once they answer.
	Start(programs []Program, all bool) (started []string, err error)
	// Run runs a command as the programs' user, and returns its output when it has ended. If it
	// fails, the error is a *Failure.
	Run(ctx context.Context, command []string) (said string, err error)
	// Free removes from devices the addresses that the configuration old ("": none) set and that
	// are no longer wanted: FRR leaves them when it ends, and then takes them for the kernel's own.
	Free(old string) error

	// Old returns the configuration whose files exist; "" if there are none.
	Old() string
	// Loaded says whether Note was called last, rather than Forget. Note records the running
	// configuration just after loading; later differences were made by hand.
	Loaded() bool
	Note(shown string) error
	Forget()
}

// A Failure is the error of a command that has failed.
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

// Into runs the programs of a router at their place, and loads its own configuration into those
// that do not have it yet.
func (l *Loading) Into(ctx context.Context, p Place, programs []Program) error {
	fresh, old := !p.Loaded(), p.Old() // fresh: no configuration of the router's is loaded
	changed := false
	for _, want := range programs {
		rewritten, err := p.Write(want.Files)
		if err != nil {
			return err
		}
		changed = changed || rewritten
	}
	if changed { // until it is loaded: after a failure, all are started anew
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
		if err != nil { // perhaps only a restart can change what differs
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

// Shown returns the running configuration as the client prints it, for Running.
func (l *Loading) Shown(ctx context.Context, p Place) (string, error) {
	return l.client(ctx, p, "-c", "show running-config")
}

// FreeAddresses removes from devices, in the thread's network namespace, the addresses that the
// configuration old set, except for those in given. Devices that are not in given are left alone,
// and addresses that are gone already are no error.
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

// added are the lines that Trivet adds to a configuration.
var added = []string{noNextHopObjects, integrated}

// integrated is vtysh's setting for one configuration of all daemons.
const integrated = "service integrated-vtysh-config"

// Running returns the configuration in FRR's output, without the text around it, and without what
// Trivet has added and was does not contain.
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

// Environment is the environment of commands that Place.Run runs.
var Environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}
