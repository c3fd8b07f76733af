package cli

import (
	"errors"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/controller/foreign"
	"trivet.dev/trivet/datapath/ovs"
	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/datapath/vm"
	"trivet.dev/trivet/internal/kernel"
	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/internal/qemu"
	"trivet.dev/trivet/internal/servers"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/target/container"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/target/local/wifi"
)

// finding is one thing that doctor examined.
type finding = local.Finding

func (a *app) doctor() *cobra.Command {
	var on string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Report what this machine can do, and what would help", Args: cobra.NoArgs,
		Example: "  trivet doctor\n  trivet doctor --on machines.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if on != "" {
				return a.examineSites(cmd.Context(), on)
			}
			findings := examine()
			failed := false
			for _, f := range findings {
				failed = failed || f.Needed && !f.OK
			}
			if a.json {
				if err := a.printJSON(findings); err != nil {
					return err
				}
			} else {
				a.showFindings(findings)
			}
			if failed {
				return exitCode(exitError)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&on, "on", "",
		"look at other machines: a file that lists them, their names for ssh, with commas, or openstack")
	return cmd
}

func (a *app) showFindings(findings []finding) {
	rows := [][]string{{"", "WHAT", "FOUND"}}
	for _, f := range findings {
		rows = append(rows, a.findingRows(f)...)
	}
	a.table(rows)
}

// findingRows returns a finding's rows in a table: the finding, and the cure.
func (a *app) findingRows(f finding) [][]string {
	mark := a.paint(green, "ok")
	switch {
	case f.Unknown:
		mark = "?"
	case !f.OK && f.Needed:
		mark = a.paint(red, "NO")
	case f.Warns:
		mark = a.paint(yellow, "warning")
	case !f.OK:
		mark = "–"
	}
	rows := [][]string{{mark, f.What, f.Says}}
	if f.Cure != "" && !f.OK {
		rows = append(rows, []string{"", "", "→ " + f.Cure})
	}
	return rows
}

func examine() []finding {
	out := []finding{
		{What: "kernel", OK: true, Says: kernel.Release()},
		{What: "root", OK: os.Geteuid() == 0,
			Says: map[bool]string{true: "yes",
				false: "no: labs cannot be brought up, and some checks below are guesses"}[os.Geteuid() == 0],
			Cure: "sudo trivet doctor"},
	}
	for _, f := range local.Examine() {
		f.Warns = !f.OK
		out = append(out, f)
	}
	out = append(out, examineOVS()...)
	for _, p := range []struct{ name, pkg, use string }{
		{"iperf3", "iperf3", "trivet iperf"}, {"python3", "python3", "reading Mininet scripts"},
	} {
		f := finding{What: p.name, Cure: "apt install " + p.pkg, Says: "missing: " + p.use + " needs it"}
		if path, err := exec.LookPath(p.name); err == nil {
			f.OK, f.Says = true, path
		}
		out = append(out, f)
	}
	engine := finding{What: "containers", Cure: "apt install podman, or docker.io"}
	if says, err := container.Engine(); err == nil {
		engine.OK, engine.Says = true, says
	} else {
		engine.Says = err.Error()
	}
	out = append(out, engine)
	places := foreign.PlacesOf(lab.Owner())
	for _, c := range foreign.All() {
		f := finding{What: c.Name, Cure: c.HowToInstall(places), Says: "missing: --controller " + c.Name + " needs it"}
		program, err := c.Find(places)
		if other := (*lack.Error)(nil); errors.As(err, &other) { // it may lack something else
			f.Cure = other.Hint
		}
		if err == nil {
			f.OK, f.Says = true, strings.Join(program, " ")
		}
		out = append(out, f)
	}
	for _, p := range servers.All() {
		f := finding{What: p.Name, Cure: "apt install " + p.Package, Says: "missing: a cluster of controllers needs it"}
		if program, err := p.Find(); err == nil {
			f.OK, f.Says = true, program
		}
		out = append(out, f)
	}
	for _, family := range routerd.All() {
		f := finding{What: family.Name, Cure: "apt install " + family.Package,
			Says: "missing: datapath " + strings.ToLower(family.Name) + " needs it"}
		switch missing := family.Missing(); {
		case family.Installed() != nil:
		case len(missing) > 0:
			f.Says = "without " + strings.Join(missing, ", ")
		default:
			f.OK, f.Says = true, "yes"
		}
		out = append(out, f)
	}
	guests := finding{What: "QEMU", OK: true, Says: "yes"}
	if err := qemu.Lacks(); err != nil {
		guests = finding{What: "QEMU", Says: "missing: hosts and routers that are virtual machines (vm) need it",
			Cure: err.Error()}
	}
	firmware := finding{What: "OVMF", Says: "missing: virtual machines with firmware: uefi need it",
		Cure: "apt install ovmf"}
	if code, _, err := qemu.UEFI(); err == nil {
		firmware.OK, firmware.Says = true, code
	}
	out = append(out, guests, firmware)
	machines := finding{What: "virtual machines", Says: "missing: datapath vm needs them"}
	own := os.Getenv(vm.KernelVariable)
	if err := vm.Lacks(own); err != nil {
		machines.Cure = strings.ReplaceAll(err.Error(), "\n", "; ")
	} else {
		kernel, _ := vm.FindKernel(own)
		machines.OK, machines.Says = true, "QEMU, with the kernel "+kernel.Image
	}
	out = append(out, machines)
	for _, p := range wifi.Programs() {
		f := finding{What: p.Name, Cure: "apt install " + p.Package, Says: "missing: wifi needs it"}
		if path, err := p.Path(); err == nil {
			f.OK, f.Says = true, path
		}
		out = append(out, f)
	}
	return out
}

func examineOVS() []finding {
	info, err := ovs.Probe()
	if err != nil {
		return []finding{{What: "Open vSwitch", Says: "missing: datapath ovs is not available", Cure: err.Error()}}
	}
	out := []finding{{What: "Open vSwitch", OK: true, Says: info.Version + ", " + info.VSwitch}}
	kernel := finding{What: "its kernel module", OK: info.Kernel == nil, Says: "loads: switches forward in the kernel"}
	if info.Kernel != nil {
		kernel.Warns, kernel.Says = true, "missing: switches forward in user space, at about 1 Gbit/s"
		kernel.Cure = strings.Split(info.Kernel.Error(), "\n")[0]
	}
	return append(out, kernel)
}
