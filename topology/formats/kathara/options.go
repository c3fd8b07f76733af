package kathara

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/shlex"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// options reads the options of a device, by name; each function returns an error that says what is
// wrong with the value.
var options = map[string]func(r *reader, d *device, s statement) error{
	"image": func(_ *reader, d *device, s statement) error { d.Image = s.value; return nil },
	"mem": func(_ *reader, d *device, s statement) (err error) {
		d.Memory, err = memory(s.value)
		return err
	},
	"cpus": func(_ *reader, d *device, s statement) (err error) {
		if strings.HasSuffix(s.value, "%") {
			return topology.Mistaken("write 0.5", "%q is not a number of processors", formats.Clip(s.value))
		}
		d.CPU, err = topology.ParseCPU(s.value)
		return err
	},
	"bridged": func(_ *reader, d *device, s statement) (err error) { d.bridged, err = truth(s.value); return err },
	"privileged": func(_ *reader, d *device, s statement) (err error) {
		d.Privileged, err = truth(s.value)
		return err
	},
	"ipv6":  func(_ *reader, d *device, s statement) (err error) { d.ipv6, err = truth(s.value); return err },
	"exec":  func(_ *reader, d *device, s statement) error { d.exec = append(d.exec, s.value); return nil },
	"shell": func(_ *reader, d *device, s statement) error { d.shell = s.value; return nil },
	"sysctl": func(_ *reader, d *device, s statement) error {
		return d.assigned(&d.sysctls, s.value, setting, "net.ipv4.ip_forward=1")
	},
	"env": func(_ *reader, d *device, s statement) error {
		return d.assigned(&d.Env, s.value, variable, "NAME=value")
	},
	"entrypoint": func(_ *reader, d *device, s statement) (err error) {
		d.Entrypoint, err = split(s.value)
		return err
	},
	"args":   func(_ *reader, d *device, s statement) (err error) { d.Cmd, err = split(s.value); return err },
	"port":   (*reader).port,
	"volume": (*reader).volume,
	"num_terms": func(r *reader, d *device, s statement) error {
		if n, err := strconv.Atoi(s.value); err != nil || n < 0 {
			return topology.Mistaken("write 1", "%q is not a number of terminals", formats.Clip(s.value))
		}
		keep(&d.Foreign, s.arg, s.value)
		r.once(s, "trivet shell DEVICE opens one", "num_terms has no effect: no terminals are opened")
		return nil
	},
	"ulimit": func(r *reader, d *device, s statement) error {
		keep(&d.Foreign, s.arg, joined(kept(d.Foreign, s.arg), s.value))
		r.problems.Warn(s.pos, "write ulimit into the device's .startup file, for what that starts",
			"device %s: ulimit %s has no effect", d.Name, formats.Clip(s.value))
		return nil
	},
}

// several are the options that a device can have more than once.
var several = []string{"exec", "sysctl", "env", "port", "volume", "ulimit"}

func (r *reader) option(d *device, s statement) {
	set := options[s.arg]
	if set == nil {
		r.problems.Warn(s.pos, topology.DidYouMean(s.arg, optionNames()),
			"device %s: there is no option %q, and it has no effect", d.Name, formats.Clip(s.arg))
		keep(&d.Foreign, s.arg, s.value)
		return
	}
	if key := d.Name + "[" + s.arg; !slices.Contains(several, s.arg) {
		if r.noted[key] {
			r.problems.Warn(s.pos, "keep one of them", "device %s: %s has been given a value before; this one holds",
				d.Name, s.arg)
		}
		r.noted[key] = true
	}
	if err := set(r, d, s); err != nil {
		text, hint := topology.TextAndHint(err)
		r.problems.Add(s.valuePos, hint, "device %s: %s: %s", d.Name, s.arg, text)
	}
}

func optionNames() (names []string) {
	for name := range options {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// once warns at the first statement to which a warning applies, and not again; warnings are told
// apart by their format.
func (r *reader) once(s statement, hint, format string, args ...any) {
	if r.noted[format] {
		return
	}
	r.noted[format] = true
	r.problems.Warn(s.pos, hint, format, args...)
}

func joined(before, value string) string { return strings.TrimPrefix(before+"\n"+value, "\n") }

// truth reads the words that Python's strtobool accepts.
func truth(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "y", "yes", "t", "true", "on", "1":
		return true, nil
	case "n", "no", "f", "false", "off", "0":
		return false, nil
	}
	return false, topology.Mistaken("write true or false", "%q is neither true nor false", formats.Clip(s))
}

var memorySize = regexp.MustCompile(`^(\d+) ?([bkmgBKMG]?)$`)

// memory reads a size such as 64m; a number without a unit is in megabytes.
func memory(s string) (topology.Bytes, error) {
	match := memorySize.FindStringSubmatch(s)
	if match == nil {
		return 0, topology.Mistaken("write 256m", "%q is not a size of memory", formats.Clip(s))
	}
	if match[2] == "" {
		match[2] = "m"
	}
	return topology.ParseBytes(match[1] + match[2])
}

var (
	setting  = regexp.MustCompile(`^(net\.(?:[\w-]+\.)+[\w-]+)=([^=]*)$`)
	variable = regexp.MustCompile(`^(\w+)=(.*)$`)
)

func (d *device) assigned(list *[]topology.Assignment, value string, as *regexp.Regexp, example string) error {
	match := as.FindStringSubmatch(value)
	if match == nil {
		return topology.Mistaken("write "+example, "%q is not of that form", formats.Clip(value))
	}
	*list = assign(*list, topology.Assignment{Name: match[1], Value: strings.TrimSpace(match[2])})
	return nil
}

func split(s string) (topology.Words, error) {
	words, err := shlex.Split(s)
	if err != nil {
		return nil, topology.Mistaken("write a program and its arguments", "%q: %s", formats.Clip(s), err)
	}
	return words, nil
}

// port reads 8080:80, or 80 alone, which is published at port 3000 of the machine; /tcp or /udp may
// follow.
func (r *reader) port(d *device, s statement) error {
	ports, protocol, _ := strings.Cut(s.value, "/")
	machine, own, both := strings.Cut(ports, ":")
	if !both {
		machine, own = "3000", ports
	}
	p, err := topology.ParsePublished(machine + ":" + own)
	protocol = strings.ToLower(protocol)
	p.UDP = protocol == "udp"
	switch {
	case err != nil || strings.Contains(own, ":"):
		return topology.Mistaken("write 8080:80", "%q is not a port of the machine and one of the device",
			formats.Clip(s.value))
	case protocol == "sctp":
		keep(&d.Foreign, s.arg, joined(kept(d.Foreign, s.arg), s.value))
		r.problems.Warn(s.pos, "", "device %s: port %s has no effect: only ports of TCP and UDP can be published",
			d.Name, formats.Clip(s.value))
		return nil
	case protocol != "" && protocol != "tcp" && protocol != "udp":
		return topology.Mistaken("write 8080:80/tcp", "there is no protocol %q", formats.Clip(protocol))
	}
	d.Ports = slices.DeleteFunc(d.Ports,
		func(other topology.Port) bool { return other.Machine == p.Machine && other.UDP == p.UDP })
	d.Ports = append(d.Ports, p)
	r.once(s, fmt.Sprintf("to change that, write ports: [0.0.0.0:%s] in Trivet's own file", p),
		"ports are published at 127.0.0.1 of the machine alone, and not at all of its addresses as by Kathará")
	return nil
}

// volume reads SOURCE|PATH|MODE.
func (r *reader) volume(d *device, s statement) error {
	parts := strings.FieldsFunc(s.value, func(c rune) bool { return c == '|' })
	if len(parts) == 2 {
		parts = append(parts, "ro")
	}
	if len(parts) != 3 || !slices.Contains([]string{"ro", "rw", "rx"}, parts[2]) {
		return topology.Mistaken("write SOURCE|PATH|ro",
			"%q is not a directory of the machine, one of the device, and ro or rw", formats.Clip(s.value))
	}
	d.Dirs = append(d.Dirs, topology.PrivateDir{Path: parts[1], Source: parts[0], ReadOnly: parts[2] != "rw"})
	return nil
}
