package container

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	engineapi "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// program is an image's default program.
type program struct{ entrypoint, cmd []string }

// programs returns the programs of the nodes' images, by image.
func programs(engine *client.Client, nodes []*topology.Node) (map[string]program, error) {
	ctx, cancel := patience.Engine.Context(context.Background())
	defer cancel()
	out := map[string]program{}
	for _, n := range nodes {
		image := imageOf(n)
		if _, has := out[image]; has {
			continue
		}
		is, err := engine.ImageInspect(ctx, image)
		if err != nil {
			return nil, fmt.Errorf("%s: image %s: %w", n.Name, image, err)
		}
		out[image] = program{}
		if c := is.Config; c != nil {
			out[image] = program{c.Entrypoint, c.Cmd}
		}
	}
	return out, nil
}

// command returns what a container runs: the image's program, or the topology's in its place. As
// with the engines' own commands, an entrypoint in the topology drops the image's arguments.
func (p program) command(n *topology.Node) ([]string, error) {
	if len(n.Entrypoint) > 0 {
		p = program{entrypoint: n.Entrypoint}
	}
	if len(n.Cmd) > 0 {
		p.cmd = n.Cmd
	}
	argv := slices.Concat(p.entrypoint, p.cmd)
	if len(argv) == 0 {
		return nil, topology.Mistaken("write cmd: PROGRAM", "image %s names no program", imageOf(n))
	}
	return argv, nil
}

// options returns what an engine is asked for. The program gets a terminal, so that a shell does
// not exit.
func (k *containers) options(n *topology.Node, waiter string,
	argv []string) (*engineapi.Config, *engineapi.HostConfig) {
	env := make([]string, len(n.Env))
	for i, e := range n.Env {
		env[i] = e.String()
	}
	config := &engineapi.Config{Image: imageOf(n), Hostname: n.Name, Env: env, User: n.User, Tty: true, OpenStdin: true,
		Entrypoint: []string{waiting, gates}, Cmd: argv, Labels: map[string]string{labLabel: k.Dir, nodeLabel: n.Name}}
	host := &engineapi.HostConfig{NetworkMode: "none", Privileged: n.Privileged,
		CapAdd: append([]string{"NET_ADMIN", "NET_RAW"}, n.Capabilities...), Resources: resources(n)}
	if k.serves {
		host.Ulimits = ulimits()
	}
	bind := func(source, target string, readOnly bool) {
		host.Mounts = append(host.Mounts,
			mount.Mount{Type: mount.TypeBind, Source: source, Target: target, ReadOnly: readOnly})
	}
	bind(waiter, waiting, true)
	bind(k.gates(n.Name), gates, true)
	for _, file := range namesFiles {
		target := "/etc/" + file
		if !slices.ContainsFunc(n.Dirs, func(d topology.PrivateDir) bool { return path.Clean(d.Path) == target }) {
			bind(k.ownNames(n, file), target, false)
		}
	}
	for _, d := range n.Dirs {
		if d.Source != "" {
			bind(d.Source, d.Path, d.ReadOnly)
			continue
		}
		host.Mounts = append(host.Mounts,
			mount.Mount{Type: mount.TypeTmpfs, Target: d.Path, TmpfsOptions: &mount.TmpfsOptions{Mode: 0o1777}})
	}
	for _, d := range n.Devices {
		host.Devices = append(host.Devices,
			engineapi.DeviceMapping{PathOnHost: d, PathInContainer: d, CgroupPermissions: "rwm"})
	}
	return config, host
}

// ulimits are the limits of containers of a Podman that serves this lab only. Its defaults are
// higher than it may set where root cannot raise limits, and it would fail.
func ulimits() (out []*engineapi.Ulimit) {
	add := func(name string, of int, most uint64) {
		var limit unix.Rlimit
		if unix.Getrlimit(of, &limit) == nil {
			n := int64(min(limit.Max, most))
			out = append(out, &engineapi.Ulimit{Name: name, Soft: n, Hard: n})
		}
	}
	add("nofile", unix.RLIMIT_NOFILE, 1<<20)
	text, _ := os.ReadFile("/proc/sys/kernel/pid_max") // to which Podman lowers its own limit
	if most, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32); err == nil {
		add("nproc", unix.RLIMIT_NPROC, most)
	}
	return out
}

// resources returns a container's limits on memory and processors.
func resources(n *topology.Node) (r engineapi.Resources) {
	r.Memory = int64(n.Memory)
	r.NanoCPUs = int64(n.CPU.Processors() * 1e9)
	r.CpusetCpus = cgroup.List(n.Cores)
	return r
}
