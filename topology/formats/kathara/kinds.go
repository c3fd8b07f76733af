package kathara

import (
	"slices"
	"strings"

	"trivet.dev/trivet/topology"
)

const (
	// defaultImage is the image that Kathará gives to devices that name none.
	defaultImage = "kathara/base"
	defaultShell = "/bin/bash"

	// longestScript is the maximum length of a script: that of one argument of a program in Linux
	// (MAX_ARG_STRLEN), less what is put around the script.
	longestScript = 128<<10 - 64
)

// capabilities are those that Kathará's devices have in addition to those of other containers.
var capabilities = []string{"NET_ADMIN", "NET_BROADCAST", "SYS_ADMIN"}

// shared shows the directory "shared" of the lab to a device, at /shared.
var shared = topology.PrivateDir{Path: "/shared", Source: "shared"}

// kinds decides which devices are containers, and sets what each of them runs.
func (r *reader) kinds() {
	var plain []string
	var first *device
	for _, d := range r.devices {
		var x beside
		if r.extra != nil {
			x = *r.extra
		}
		own, files := x.scripts[d.Name], x.folders[d.Name]
		if d.Image == "" &&
			(files.there || len(d.Env)+len(d.Entrypoint)+len(d.Cmd) > 0 || d.Memory > 0 || d.Privileged ||
				d.shell != "" ||
				!networkOnly(strings.Join(append([]string{x.startup, own.startup, x.stop, own.stop}, d.exec...),
					"\n"))) {
			d.Image = defaultImage
		}
		if d.Contained() && !d.Privileged {
			d.Capabilities = slices.Clone(capabilities)
		}
		if !d.Contained() {
			if plain = append(plain, d.Name); first == nil {
				first = d
			}
		}
		r.commands(d, &x, own, files)
	}
	if len(plain) > 0 {
		r.problems.Warn(first.Pos,
			`to have them in containers of Kathará's default image, write `+first.Name+`[image]="`+defaultImage+`"`,
			"%s: no image is given, and only the network is configured: there are the machine's own programs",
			some(plain))
	}
	r.orders()
}

// commands sets what a device does when it starts and when it ends.
func (r *reader) commands(d *device, x *beside, own scripts, files folder) {
	shell := defaultShell
	if d.shell != "" {
		shell = d.shell
		keep(&d.Foreign, "shell", d.shell)
	}
	var start, stop []string
	if files.there {
		from := "/hostlab/" + d.Name
		d.Dirs = append(d.Dirs, topology.PrivateDir{Path: from, Source: d.Name, ReadOnly: true})
		start = append(start, files.copied(from)...)
	}
	add := func(list *[]string, script string) {
		if strings.TrimSpace(script) != "" {
			*list = append(*list, run(shell, script))
		}
	}
	add(&start, x.startup)
	add(&start, own.startup)
	add(&start, strings.Join(d.exec, "\n"))
	add(&stop, own.stop)
	add(&stop, x.stop)
	d.Start, d.Stop = strings.Join(start, "\n"), strings.Join(stop, "\n")
	for what, command := range map[string]string{"startup": d.Start, "shutdown": d.Stop} {
		if len(command) > longestScript {
			r.problems.Add(d.Pos, "put a part of it into a file in the directory "+d.Name+", and run that",
				"device %s: its %s scripts are longer than %d KiB together", d.Name, what, longestScript>>10)
		}
	}
	if x.shared || strings.Contains(d.Start+d.Stop, "/shared") {
		d.Dirs = append(d.Dirs, shared)
	}
}

// copied returns the commands that copy a device's files, which are in the directory from, to their
// places. Files that are there already, which may be mounts, are overwritten in place and keep
// their owners.
func (f folder) copied(from string) []string {
	out := []string{"(umask 022; cd " + from + " && find . -type d -exec mkdir -p /{} ';' -o -exec cp -Pf {} /{} ';')"}
	for _, file := range f.windows {
		out = append(out,
			`sed "s/$(printf '\r')\$//; 1s/^$(printf '\357\273\277')//" `+quoted(from+file)+" >"+quoted(file))
	}
	return append(out, f.below...)
}

// orders removes, with a warning, the dependencies of lab.dep that are not between two containers.
func (r *reader) orders() {
	for _, d := range r.devices {
		var not []string
		d.After = slices.DeleteFunc(d.After, func(other string) bool {
			plain := !d.Contained() || !r.byName[other].Contained()
			if plain {
				not = append(not, other)
			}
			return plain
		})
		if len(not) > 0 {
			r.problems.Warn(d.afterPos, "give both an image",
				"device %s does not wait for %s: only containers wait, for containers", d.Name, some(not))
		}
	}
}
