package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/cobra"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/rack/provision"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// provisioning is the common part of the commands that run a playbook on the devices of a rack.
type provisioning struct {
	*app
	run   provision.Run
	roles []string // from which --only chooses
	file  string
}

func (a *app) rackProvision() *cobra.Command {
	p := &provisioning{app: a, roles: []string{"gateway", "time", "address", "docker", "nvidia", "binary", "k3s"},
		run: provision.Run{Playbook: "provision"}}
	cmd := p.command("provision", "Install and set what labs need on the devices and the gateway",
		"What is so already stays so: a second run changes nothing. At the gateway: DHCP, DNS and a way out for the devices; everywhere:\n"+
			"clocks that agree; on devices: a static address, VLANs, this program; Docker (label docker), NVIDIA's container runtime (jetson),\n"+
			"k3s (k3s-server, k3s-agent).",
		"  sudo trivet rack provision rack.yaml\n  sudo trivet rack provision rack.yaml pi-4 --only time,binary")
	cmd.Flags().BoolVar(&p.run.Check, "check", false, "change nothing, only say what would be changed")
	inside := cmd.Flags().String("k3s-inside", "",
		"give k3s the addresses that the devices have in this lab, which is up")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := p.read(args); err != nil {
			return err
		}
		if os.Geteuid() != 0 && p.concerns(provision.Gateway) {
			return usagef("this sets up the gateway, which is this machine, too: run it with sudo, or name devices")
		}
		if err := p.inside(cmd.Context(), *inside); err != nil {
			return err
		}
		return p.do(cmd.Context())
	}
	return cmd
}

func (a *app) rackUpdate() *cobra.Command {
	p := &provisioning{app: a, roles: []string{"packages", "binary"}, run: provision.Run{Playbook: "update"}}
	return p.command("update", "Upgrade the devices' packages, and this program there", "",
		"  trivet rack update rack.yaml")
}

func (a *app) rackReboot() *cobra.Command {
	p := &provisioning{app: a, run: provision.Run{Playbook: "reboot"}}
	return p.command("reboot", "Boot devices, and wait until they are back", "",
		"  trivet rack reboot rack.yaml pi-1 pi-2")
}

func (a *app) rackShutdown() *cobra.Command {
	p := &provisioning{app: a, run: provision.Run{Playbook: "shutdown"}}
	return p.command("shutdown", "Switch devices off, and wait until they are", "", "  trivet rack shutdown rack.yaml")
}

// command makes a command that runs the playbook.
func (p *provisioning) command(name, short, long, example string) *cobra.Command {
	cmd := &cobra.Command{Use: name + " RACK.yaml [DEVICE...]", Short: short,
		Long: strings.TrimSpace(short + ".\n" + long), Example: example, Args: cobra.MinimumNArgs(1)}
	if len(p.roles) > 0 {
		cmd.Flags().StringSliceVar(&p.run.Roles, "only", nil, "only this: "+strings.Join(p.roles, ", "))
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := p.read(args); err != nil {
			return err
		}
		return p.do(cmd.Context())
	}
	return cmd
}

// read parses the arguments.
func (p *provisioning) read(args []string) error {
	for _, r := range p.run.Roles {
		if !slices.Contains(p.roles, r) {
			return usagef("there is no role %s to do only; there are %s", r, strings.Join(p.roles, ", "))
		}
	}
	list, err := site.Read(args[0])
	if err != nil {
		return err
	}
	if list.Head.NIC == "" {
		return fmt.Errorf("%s is not a rack: it names no gateway\n  add the interface to which the devices are connected:  gateway: {inner: eth1}", args[0])
	}
	var known []string
	if p.run.Playbook == "provision" {
		known = append(known, provision.Gateway)
	}
	for _, m := range list.Machines {
		known = append(known, m.Name)
	}
	for _, d := range args[1:] {
		if !slices.Contains(known, d) {
			hint := cmp.Or(topology.DidYouMean(d, known), "it has "+strings.Join(known, ", "))
			return usagef("%s has no device %s; %s", args[0], d, hint)
		}
	}
	user, err := site.UserOf(lab.Owner())
	p.file, p.run.Rack, p.run.User, p.run.Devices = args[0], list, user, args[1:]
	return err
}

// concerns says whether a device takes part.
func (p *provisioning) concerns(device string) bool {
	return len(p.run.Devices) == 0 || slices.Contains(p.run.Devices, device)
}

// inside passes the addresses that devices have in a lab to k3s.
func (p *provisioning) inside(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	s, err := lab.Choose(name)
	if err != nil {
		return err
	}
	p.run.Variables = map[string]map[string]any{}
	for _, n := range s.Topology.Nodes {
		if at := firstAddress(s.Topology, n.Name); n.Kind == topology.Host && at != "" &&
			p.run.Rack.Machine(n.Sited()) != nil {
			if p.run.Variables[n.Sited()] != nil {
				return fmt.Errorf("%s has several hosts of lab %s: k3s can have the address of one only",
					n.Sited(), name)
			}
			p.run.Variables[n.Sited()] = map[string]any{"trivet_k3s_address": at}
		}
	}
	if len(p.run.Variables) == 0 {
		return fmt.Errorf("no device of %s is a host of lab %s", p.file, name)
	}
	return nil
}

// do runs the playbook, and shows the result for each device at the end.
func (p *provisioning) do(ctx context.Context) error {
	got, err := p.play(ctx)
	if err != nil {
		return err
	}
	return p.sumUp(got)
}

// play runs the playbook, and shows its progress.
func (p *provisioning) play(ctx context.Context) ([]*provision.Outcome, error) {
	b := &board{app: p.app, live: isTerminal(p.out) && !p.json, width: columnsOf(p.out), doing: map[string]string{}}
	defer b.draw("")
	return p.run.Do(ctx, b.tell)
}

// sumUp shows the results of the devices.
func (p *provisioning) sumUp(got []*provision.Outcome) error {
	failed, changed := 0, 0
	rows := [][]string{{"DEVICE", "CHANGED", "FAILED", "WHY"}}
	for _, o := range got {
		row := []string{o.Device, fmt.Sprint(o.Changed), "–", ""}
		if changed += o.Changed; o.Failed != "" {
			failed++
			row[2], row[3] = p.paint(red, o.Failed), shortened(o.Why)
		}
		rows = append(rows, row)
	}
	if p.json {
		if err := p.printJSON(map[string]any{"devices": slices.Concat([]*provision.Outcome{}, got)}); err != nil {
			return err
		}
	} else {
		p.say("")
		p.table(rows)
		for _, o := range got {
			for _, n := range o.Notes {
				p.say("→ %s: %s", o.Device, n)
			}
		}
		p.say("%s", p.verdict(len(got), failed, changed))
	}
	if failed > 0 {
		return exitCode(exitError)
	}
	return nil
}

func (p *provisioning) verdict(devices, failed, changed int) string {
	would := map[bool]string{true: "would be "}[p.run.Check]
	switch {
	case devices == 0:
		return "there was nothing to do"
	case failed > 0:
		return fmt.Sprintf("%s of %d failed; the others are done: mend it, and run the same again",
			words.Plural(failed, "device"), devices)
	case changed == 0:
		return "nothing " + would + "changed: all is as it should be"
	}
	return words.Plural(changed, "change") + map[bool]string{true: " would be made", false: " made"}[p.run.Check]
}

// shortened returns the first line and the last one of a long reason.
func shortened(why string) string {
	lines := strings.Split(strings.TrimSpace(why), "\n")
	if len(lines) > 3 {
		lines = append(lines[:2], "…", lines[len(lines)-1])
	}
	return strings.Join(lines, "\n")
}

// board shows the progress of devices: changes and failures line by line and, on a terminal, below
// that the current task of each device.
type board struct {
	*app
	live  bool
	width int
	order []string
	doing map[string]string
	drawn int
}

func (b *board) tell(e provision.Event) {
	if b.json {
		return
	}
	what := e.Task
	if e.Role != "" {
		what = e.Role + ": " + e.Task
	}
	switch e.Event {
	case provision.Changed:
		b.line(e.Device, b.paint(yellow, "changed"), what)
	case provision.Failed:
		b.line(e.Device, b.paint(red, "failed"), what)
	case provision.Unreachable:
		b.line(e.Device, b.paint(red, "unreachable"), "")
	case provision.Begin:
		if !slices.Contains(b.order, e.Device) {
			b.order = append(b.order, e.Device)
			slices.Sort(b.order)
		}
		b.doing[e.Device] = what
	default:
		delete(b.doing, e.Device)
	}
	var at []string
	for _, d := range b.order {
		if b.doing[d] != "" {
			at = append(at, d+" "+b.doing[d])
		}
	}
	b.draw(strings.Join(at, " · "))
}

// line prints a permanent line.
func (b *board) line(device, became, what string) {
	b.draw("")
	b.say("%s  %s  %s", device, became, what)
	delete(b.doing, device)
}

// draw overwrites the terminal's last line.
func (b *board) draw(line string) {
	if !b.live {
		return
	}
	line = runewidth.Truncate(words.Printable(line), b.width-1, "…")
	_, _ = io.WriteString(b.out, "\r"+line+strings.Repeat(" ", max(0, b.drawn-textWidth(line)))+"\r"+line)
	b.drawn = textWidth(line)
}
