package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/go-units"
)

// Container holds the settings of a node that is a container, from an image or from one that is
// built. Hosts may be containers, and routers with datapath kernel.
type Container struct {
	// A reference as Docker and Podman accept it; with Build, the name of the built image.
	Image string `json:"image,omitempty"`
	Build string `json:"build,omitempty"` // a directory with a Dockerfile

	ContainerName string       `json:"container_name,omitempty"` // for the engine; empty: trivet-LAB-NODE
	Entrypoint    Words        `json:"entrypoint,omitempty"`     // in place of the image's
	Cmd           Words        `json:"cmd,omitempty"`            // in place of the image's
	Env           []Assignment `json:"env,omitempty"`
	User          string       `json:"user,omitempty"`         // in place of the image's, also of commands in the node
	Memory        Bytes        `json:"memory,omitzero"`        // limit; 0: none
	Capabilities  []string     `json:"capabilities,omitempty"` // additional ones, such as SYS_PTRACE
	Privileged    bool         `json:"privileged,omitempty"`   // with all of them, and the machine's devices
	Devices       []string     `json:"devices,omitempty"`      // files below the machine's /dev

	Health string   `json:"health,omitempty"` // shell command that succeeds in it once the node is ready
	After  []string `json:"after,omitempty"`  // nodes that must be ready before its program starts

	Restart Restart `json:"restart,omitempty"` // when it is remade after its program has ended
}

// Contained says whether a node is a container.
func (n *Node) Contained() bool { return n.Image != "" || n.Build != "" }

// Bytes is a size of memory.
type Bytes int64

// ParseBytes reads sizes as container engines do: 256m, 512MB and 1GiB, all in powers of 1024.
func ParseBytes(s string) (Bytes, error) {
	n, err := units.RAMInBytes(s)
	if err != nil || n <= 0 {
		return 0, Mistaken("write 256MB, 1GB", "%q is not a size of memory", clip(s))
	}
	return Bytes(n), nil
}

// String writes the size in the largest unit that it is a whole number of.
func (b Bytes) String() string {
	for _, u := range []struct {
		name string
		size Bytes
	}{{"GB", units.GiB}, {"MB", units.MiB}, {"KB", units.KiB}} {
		if b != 0 && b%u.size == 0 {
			return fmt.Sprintf("%d%s", b/u.size, u.name)
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

func (b *Bytes) UnmarshalText(text []byte) (err error) { *b, err = ParseBytes(string(text)); return }

// Words are a program and its arguments.
type Words []string

// Assignment is a variable, or a sysctl, and its value: NAME=value in JSON.
type Assignment struct{ Name, Value string }

// ParseAssignment reads NAME=value.
func ParseAssignment(s string) (Assignment, error) {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return Assignment{}, Mistaken("write NAME: value", "%q gives no name a value", clip(s))
	}
	return Assignment{name, value}, nil
}

func (a Assignment) String() string { return a.Name + "=" + a.Value }

func (a Assignment) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

func (a *Assignment) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAssignment(string(text))
	return err
}

// Port is a TCP or UDP port of the machine that leads to a port of a node.
type Port struct {
	Address netip.Addr // of the machine, to listen at; not valid: 127.0.0.1
	Machine uint16
	Node    uint16
	UDP     bool
}

const portHint = "write 8080:80, 5353:53/udp, or 0.0.0.0:8080:80 for all who reach the machine"

// ParsePublished reads 8080:80 and 192.0.2.1:8080:80, an IPv6 address in brackets; 80 is 80:80. It
// is a TCP port unless /udp follows.
func ParsePublished(s string) (p Port, err error) {
	wrong := Mistaken(portHint, "%q is not a port of the machine and one of the node", clip(s))
	s, protocol, given := strings.Cut(s, "/")
	if p.UDP = protocol == "udp"; given && !p.UDP && protocol != "tcp" {
		return Port{}, wrong
	}
	rest := s
	if i := strings.LastIndex(s, ":"); i >= 0 {
		if j := strings.LastIndex(s[:i], ":"); j >= 0 {
			host := strings.TrimSuffix(strings.TrimPrefix(s[:j], "["), "]")
			if p.Address, err = netip.ParseAddr(host); err != nil || p.Address.Is6() != strings.HasPrefix(s, "[") {
				return Port{}, wrong
			}
			rest = s[j+1:]
		}
	}
	machine, node, both := strings.Cut(rest, ":")
	if !both {
		node = machine
	}
	for into, text := range map[*uint16]string{&p.Machine: machine, &p.Node: node} {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			return Port{}, wrong
		}
		*into = uint16(n)
	}
	return p, nil
}

func (p Port) String() string {
	protocol := ""
	if p.UDP {
		protocol = "/udp"
	}
	if p.Address.IsValid() {
		return fmt.Sprintf("%s:%d%s", netip.AddrPortFrom(p.Address, p.Machine), p.Node, protocol)
	}
	return fmt.Sprintf("%d:%d%s", p.Machine, p.Node, protocol)
}

// Opening is a port that is open at an address of the machine.
type Opening struct {
	netip.AddrPort
	UDP bool
}

// String returns 127.0.0.1:53/udp, or for TCP 127.0.0.1:80.
func (o Opening) String() string {
	if o.UDP {
		return o.AddrPort.String() + "/udp"
	}
	return o.AddrPort.String()
}

// Listen returns where on the machine it listens.
func (p Port) Listen() Opening {
	address := p.Address
	if !address.IsValid() {
		address = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return Opening{netip.AddrPortFrom(address, p.Machine), p.UDP}
}

func (p Port) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

func (p *Port) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePublished(string(text))
	return err
}

var (
	// imageReference limits what an engine is asked for; the engine says whether there is such an
	// image.
	imageReference = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$`)
	containerName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]+$`)
	variableName   = regexp.MustCompile(`^[^=\x00]+$`)
	sysctlName     = regexp.MustCompile(`^net(\.[A-Za-z0-9_/:@-]+)+$`)
	capability     = regexp.MustCompile(`^(CAP_)?[A-Z][A-Z_]+$`)
)

// mostName limits the length of names of images and containers.
const mostName = 255

// container checks a node's settings as a container, including those that other nodes can have,
// too.
func (v *validator) container(n *Node, bad func(hint, format string, args ...any)) {
	named := n.Kind == Host || n.Kind == Router
	for _, s := range n.Sysctls {
		switch {
		case !named:
			bad("leave it out", "sysctls: only hosts and routers have a network of their own")
		case !sysctlName.MatchString(s.Name) || strings.Contains(s.Name, ".."):
			bad("write net.ipv4.ip_forward: 1", "sysctls: %q is not a setting of the node's network", clip(s.Name))
		case strings.ContainsAny(s.Value, "\x00\n"):
			bad("write one line", "sysctls: %s cannot be %q", s.Name, clip(s.Value))
		}
	}
	for _, p := range n.Ports {
		if !named {
			bad("leave it out", "ports: only hosts and routers have programs that listen")
		}
		at := p.Listen()
		if other := v.listens(n, at); other != nil {
			bad("take another port of the machine", "ports: %s of the machine leads to %s already", at, other.Name)
		}
	}
	if other := v.built(n); other != nil {
		bad("give one of them another image", "image: %s has %s built otherwise", other.Name, n.Image)
	}
	if !n.Contained() {
		v.uncontained(n, bad)
		return
	}
	switch {
	case !named:
		bad("make it a host or a router", "image: it cannot be a container")
	case n.Kind == Router && n.Datapath != "" && n.Datapath != Kernel:
		bad("use datapath kernel; the image brings its own daemons", "image: a router with datapath %s is no container",
			n.Datapath)
	case n.Image != "" && (len(n.Image) > mostName || !imageReference.MatchString(n.Image)):
		bad("write debian:12, or registry.example/team/name:tag", "image: %q is not the name of an image",
			clip(n.Image))
	case n.ContainerName != "" && (len(n.ContainerName) > mostName || !containerName.MatchString(n.ContainerName)):
		bad("use letters, digits, '_', '.' and '-'", "container_name: %q cannot be one", clip(n.ContainerName))
	case len(n.Isolate) > 0:
		bad("leave isolate out", "isolate: a container has processes of its own in any case")
	case n.Restart != "" && !n.Restart.valid():
		bad(restartHint, "restart: %q does not say when it is made anew", clip(string(n.Restart)))
	case n.Memory < 0:
		bad("write 256MB", "memory: %d is not a size", n.Memory)
	}
	for _, w := range slices.Concat(n.Entrypoint, n.Cmd, []string{n.User, n.Health, n.Build}) {
		if hasNUL(w) {
			bad("remove it", "words of commands cannot hold a NUL character")
			break
		}
	}
	for _, e := range n.Env {
		if !variableName.MatchString(e.Name) || hasNUL(e.Value) {
			bad("write NAME: value", "env: %q cannot be a variable", clip(e.String()))
		}
	}
	for _, c := range n.Capabilities {
		if !capability.MatchString(c) {
			bad("write SYS_PTRACE", "capabilities: there is no %q", clip(c))
		}
	}
	for _, d := range n.Devices {
		if !strings.HasPrefix(path.Clean(d), "/dev/") || hasNUL(d) {
			bad("write /dev/net/tun", "devices: %q is not below /dev", clip(d))
		}
	}
	v.after(n, bad)
}

// after checks the nodes for which a container or a virtual machine waits.
func (v *validator) after(n *Node, bad func(hint, format string, args ...any)) {
	for _, other := range n.After {
		switch o := v.nodes[other]; {
		case o == nil && v.t.Site != "": // it is at another site
		case o == nil:
			bad("name a container or a virtual machine of the topology", "after: there is no node %q", clip(other))
		case o.Guest != nil && o.Guest.Ready == "" && o.Health == "":
			bad("give it health, or vm: {ready: …}",
				"after: %s is a virtual machine that does not say when it is ready", other)
		case o.Inside() == "":
			bad("name a container or a virtual machine", "after: %s is neither, and is there before they begin", other)
		}
	}
}

// uncontained checks that a node that is no container has none of a container's settings.
func (v *validator) uncontained(n *Node, bad func(hint, format string, args ...any)) {
	if n.Guest == nil {
		if what := n.Container.first(); what != "" {
			bad("add an image", "%s is for containers", what)
		}
		return
	}
	v.after(n, bad)
	only := n.Container
	only.Memory, only.Health, only.After = 0, "", nil
	switch what := only.first(); what {
	case "":
	case "user":
		bad("write vm: {user: "+clip(n.User)+"}",
			"user is for containers; who logs in to a virtual machine is said of that")
	default:
		bad("leave it out", "%s is for containers, not for virtual machines", what)
	}
}

// listens records that a node has a port of the machine, and returns a node that has it already. A
// port at all addresses conflicts with the same port at any address.
func (v *validator) listens(n *Node, at Opening) (other *Node) {
	everywhere := netip.IPv4Unspecified()
	if at.Addr().Is6() {
		everywhere = netip.IPv6Unspecified()
	}
	family := Opening{netip.AddrPortFrom(everywhere, at.Port()), at.UDP}
	switch {
	case v.listening[at] != nil:
		return v.listening[at]
	case v.listening[family] != nil:
		return v.listening[family]
	case at == family && v.somewhere[family] != nil:
		return v.somewhere[family]
	}
	v.listening[at], v.somewhere[family] = n, n
	return nil
}

// built returns a node with the same image that is not built, or from another directory.
func (v *validator) built(n *Node) *Node {
	if n.Image == "" {
		return nil
	}
	other := v.images[n.Image]
	if other == nil {
		v.images[n.Image] = n
		return nil
	}
	if other.Build == n.Build {
		return nil
	}
	return other
}

// orders checks that containers and virtual machines do not wait for each other.
func (v *validator) orders() {
	circular(v.t.Nodes, func(n *Node) (out []*Node) {
		for _, other := range n.After {
			if o := v.nodes[other]; o != nil {
				out = append(out, o)
			}
		}
		return out
	}, func(n *Node) {
		v.problems.Add(n.Pos, "remove one of them", "%s %s: after: it waits for itself", n.Kind, n.Name)
	})
}

// circular finds things that depend on themselves, directly or through others: needs returns the
// direct dependencies of a thing. found is called once for each cycle.
func circular[T comparable](all []T, needs func(T) []T, found func(T)) {
	const begun, done = 1, 2
	state := map[T]int{}
	var visit func(T)
	visit = func(x T) {
		switch state[x] {
		case done:
			return
		case begun:
			found(x)
		default:
			state[x] = begun
			for _, other := range needs(x) {
				visit(other)
			}
		}
		state[x] = done
	}
	for _, x := range all {
		visit(x)
	}
}

// first returns the first setting that only containers have; "" if none is set.
func (c Container) first() string {
	for _, s := range []struct {
		name string
		set  bool
	}{
		{"container_name", c.ContainerName != ""}, {"entrypoint", len(c.Entrypoint) > 0}, {"cmd", len(c.Cmd) > 0},
		{"env", len(c.Env) > 0}, {"user", c.User != ""}, {"memory", c.Memory != 0},
		{"capabilities", len(c.Capabilities) > 0}, {"privileged", c.Privileged}, {"devices", len(c.Devices) > 0},
		{"health", c.Health != ""}, {"after", len(c.After) > 0}, {"restart", c.Restart != ""},
	} {
		if s.set {
			return s.name
		}
	}
	return ""
}

func (c Container) clone() Container {
	c.Entrypoint, c.Cmd = slices.Clone(c.Entrypoint), slices.Clone(c.Cmd)
	c.Env = slices.Clone(c.Env)
	c.Capabilities, c.Devices = slices.Clone(c.Capabilities), slices.Clone(c.Devices)
	c.After = slices.Clone(c.After)
	return c
}

// errand describes what root has an engine run; "" if the node is no container.
func (c Container) errand() string {
	what := cmp.Or(c.Image, "an image")
	if c.Build != "" {
		what += " built from " + c.Build
	} else if c.Image == "" {
		return ""
	}
	if c.Privileged {
		what += ", privileged: it can do all that root can"
	}
	if len(c.Capabilities) > 0 {
		what += ", with " + strings.Join(c.Capabilities, ", ")
	}
	if len(c.Devices) > 0 {
		what += ", with " + strings.Join(c.Devices, ", ")
	}
	if c.User != "" {
		what += ", as " + c.User
	}
	if argv := slices.Concat(c.Entrypoint, c.Cmd); len(argv) > 0 {
		what += ", running " + strings.Join(argv, " ")
	}
	if c.Health != "" {
		what += ", looked after by " + c.Health
	}
	return what
}
