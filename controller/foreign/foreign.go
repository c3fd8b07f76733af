// Package foreign starts OpenFlow controllers other than Trivet's for a lab: it knows how to find
// each on a machine, how to configure it for a topology, how to run it, and what it supports.
//
// A controller is a file of this package and an entry in the registry. The lab runs it in the
// switches' network namespace, where it listens on 127.0.0.1 and nobody else can reach it.
package foreign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// Controller is a controller program.
type Controller struct {
	Name     string // one of topology.ControllerPrograms
	What     string // what it is, in a few words
	OpenFlow string // version that it speaks with Open vSwitch
	Embedded string // version that it speaks with embedded switches; empty: none in common
	Switches int    // maximum number; 0: no known limit
	// How to install it: a shell command if there is one; %s stands for its own directory below
	// Places.Cache.
	Install string

	// Greets means that it installs flow entries in every Open vSwitch switch that connects, before
	// which the switch forwards nothing; so do all that speak OpenFlow 1.3.
	Greets bool

	// Says returns what its log says once it has accepted a switch; packets that the switch sends
	// to it before are lost. It is nil if the log says nothing of the kind.
	Says func(s *topology.Node) string

	// Reloads means that it reads its files again on SIGHUP.
	Reloads bool

	// PerPort means that it has flow entries only for ports that are up, so that a port that comes
	// up forwards nothing until they are installed.
	PerPort bool

	find  func(own string) (program []string, ok bool)
	files func(t *topology.Topology, switches []*topology.Node) (map[string][]byte, error)
	run   func(port int, version string) (args, env []string)
	asked func(program []string) (args []string) // asked: arguments for the program to print its version
	says  func(program []string) (string, error) // its version, if the program cannot print it
	lacks func(own string) error                 // what else is missing besides itself; nil: nothing
}

var registry = []*Controller{faucet, floodlight, osKen, ovsTestcontroller, pox}

// Lookup returns the controller with a name, or nil.
func Lookup(name string) *Controller {
	return lists.Find(registry, func(c *Controller) bool { return c.Name == name })
}

// All returns the controllers, by name.
func All() []*Controller { return slices.Clone(registry) }

// Of returns the controllers that a lab runs for switches of a resolved topology, by name. If the
// lab spans several sites, the head runs them.
func Of(t *topology.Topology) (out []*Controller) {
	if t.Site != "" && t.Site != topology.Head {
		return nil
	}
	for _, c := range registry {
		if t.IsControllerProgram(c.Name) && len(c.SwitchesOf(t)) > 0 {
			out = append(out, c)
		}
	}
	return out
}

// SwitchesOf returns the switches and routing nodes that a controller is responsible for.
func (c *Controller) SwitchesOf(t *topology.Topology) (out []*topology.Node) {
	for _, n := range t.Nodes {
		if n.IsDatapath() && slices.Contains(n.Controllers, c.Name) {
			out = append(out, n)
		}
	}
	return out
}

// Greeted returns those of its switches in which it installs flow entries as soon as they connect.
func (c *Controller) Greeted(t *topology.Topology) []*topology.Node {
	return slices.DeleteFunc(c.SwitchesOf(t),
		func(n *topology.Node) bool { return !c.Greets && n.Datapath != topology.Embedded })
}

// Find returns the program and its first arguments. The error says how to install what is missing.
func (c *Controller) Find(p Places) ([]string, error) {
	own := filepath.Join(p.Cache, c.Name)
	if program, ok := c.find(own); ok {
		return program, nil
	}
	if c.lacks != nil {
		if err := c.lacks(own); err != nil {
			return nil, err
		}
	}
	return nil, lack.New(c.Name+" is not installed", ":  ", c.HowToInstall(p))
}

// HowToInstall returns the shell command to install it, or a description if there is no single one.
func (c *Controller) HowToInstall(p Places) string {
	return strings.ReplaceAll(c.Install, "%s", filepath.Join(p.Cache, c.Name))
}

// Installed reports what is missing of the controllers of a topology; nil: nothing.
func Installed(t *topology.Topology, p Places) error {
	var errs []error
	for _, c := range Of(t) {
		_, err := c.Find(p)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Files returns the configuration files that the controller reads when it starts, by name.
func (c *Controller) Files(t *topology.Topology) (map[string][]byte, error) {
	if c.files == nil {
		return nil, nil
	}
	return c.files(t, c.SwitchesOf(t))
}

// Write writes them to a directory.
func (c *Controller) Write(dir string, t *topology.Topology) error {
	files, err := c.Files(t)
	for name, content := range files {
		err = errors.Join(err, replace(filepath.Join(dir, name), content))
	}
	return err
}

// replace writes a file that another process may be reading.
func replace(file string, content []byte) error {
	if err := os.WriteFile(file+".new", content, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// Command returns the command for the controller: in its directory, listening on a TCP port of
// 127.0.0.1, with an environment of its own, as the user in Places, for these switches.
func (c *Controller) Command(p Places, program []string, dir string, port int, switches []*topology.Node) *exec.Cmd {
	args, env := c.run(port, c.version(switches[0]))
	cmd := exec.Command(program[0], slices.Concat(program[1:], args)...)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"PATH=" + filepath.Dir(program[0]) + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
		"HOME=" + dir, "LANG=C.UTF-8", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1",
	}, env...)
	p.runAs(cmd, program, dir)
	return cmd
}

// Version returns the program's version, as one line.
func (c *Controller) Version(ctx context.Context, p Places) (string, error) {
	program, err := c.Find(p)
	if err != nil {
		return "", err
	}
	if c.says != nil {
		return c.says(program)
	}
	ctx, cancel := patience.Version.Context(ctx)
	defer cancel()
	args := []string{"--version"}
	if c.asked != nil {
		args = c.asked(program)
	}
	cmd := exec.CommandContext(ctx, program[0], args...)
	cmd.Dir, cmd.WaitDelay = "/", time.Second
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/", "LANG=C.UTF-8",
		"PYTHONDONTWRITEBYTECODE=1"}
	p.runAs(cmd, program, cmd.Dir)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line, nil
}

func number(port int) string { return strconv.Itoa(port) }
