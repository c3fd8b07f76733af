package clab

import (
	"cmp"
	"net/netip"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/google/shlex"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// nodeReader makes one node.
type nodeReader struct {
	*reader
	n       *topology.Node
	l       levels
	subject string
	names   *strings.Replacer
}

func (r *reader) node(p yamlfile.Pair) {
	subject := "node " + formats.Clip(p.Key.Text)
	l, written, group := r.inherited(r.definition(p.Value, subject))
	k := strings.ToLower(written)
	n := r.t.AddNode(topology.Host, p.Key.Text)
	n.Pos = p.Key.Pos
	r.nodes[n.Name], r.kindOf[n.Name] = n, k
	switch {
	case k == "":
		r.Bad(p.Key, "write kind: linux", "%s has no kind", subject)
	case k == kindBridge, k == kindOVS:
		n.Kind, n.Controllers, n.Datapath = topology.Switch, []string{topology.ControllerNone}, topology.Bridge
		if k == kindOVS {
			n.Datapath = topology.OVS
		}
	case k == "host":
		r.Bad(p.Key, "leave it out: the machine reaches the nodes by the management network",
			"%s: the machine itself is no node (kind host)", subject)
	case k == "ext-container", k == "k8s-kind":
		r.Bad(p.Key, "leave it out, or write its image: kind: linux",
			"%s: containers that others make are no nodes (kind %s)", subject, k)
	case kindOf(k) == nil:
		r.Warn(p.Key, topology.DidYouMean(k, kindNames()), "%s: kind %q is unknown: it is a container of its image",
			subject, formats.Clip(k))
	case k != kindLinux:
		r.lose(p.Key, "what containerlab adds to the image of kind "+k+" (files, variables, a first configuration)",
			"write what the image needs: env, cmd, binds")
	}
	r.keep(n, l)
	if k != kindLinux && n.Kind != topology.Switch {
		foreign(&n.Foreign)["kind"] = k
	}
	if group != "" {
		foreign(&n.Foreign)["group"] = group
	}
	if n.Kind == topology.Switch {
		r.ofSwitch(n, l)
		return
	}
	lab := "clab-" + r.t.Name
	nr := &nodeReader{r, n, l, subject, strings.NewReplacer("__clabNodeDir__", lab+"/"+n.Name, "__clabNodeName__",
		n.Name, "__clabDir__", lab, "__clabLabName__", lab)}
	n.Unaddressed = true
	nr.network()
	nr.start()
	nr.dirs()
	nr.limits()
	image, at := r.word(l, "image", subject)
	switch n.Image = image; {
	case image == "":
		nr.bare()
		return
	case strings.Contains(image, "$"):
		r.Bad(at, "export it, and have sudo keep it: sudo --preserve-env; or write a default: ${TAG:=1.0}",
			"%s: image: %s has a variable that is not set", subject, at)
	}
	nr.container()
	nr.health()
	nr.stages()
}

// ofSwitch reports keys that a bridge cannot have.
func (r *reader) ofSwitch(n *topology.Node, l levels) {
	for _, key := range []string{"exec", "binds", "ports", "mgmt-ipv4", "sysctls", "stages", "healthcheck"} {
		if p, ok := l[3][key]; ok {
			r.lose(p.Key, key+" of a bridge", "")
		}
	}
}

// bare reports keys that a node without an image cannot have: such a node uses the machine's
// programs.
func (r *nodeReader) bare() {
	r.lose(&yamlfile.Value{Pos: r.n.Pos}, "kind of a node without an image",
		"write its image; it is a node with the programs of the machine")
	for _, key := range []string{"cmd", "entrypoint", "env", "user", "memory", "cap-add", "privileged", "devices",
		"stages", "healthcheck", "restart-policy"} {
		if v := r.l.get(key); v != nil {
			r.lose(v, key+" of a node without an image", "")
		}
	}
}

// network reads what concerns a node's network, except for links.
func (r *nodeReader) network() {
	mode, v := r.word(r.l, "network-mode", r.subject)
	switch mode = strings.ToLower(mode); {
	case mode == "" || mode == "bridge" || mode == "none":
	case mode == "host" || strings.HasPrefix(mode, "container:"):
		r.Bad(v, "leave it out: a node has a network of its own", "%s: network-mode: %s is not possible", r.subject, v)
	default:
		r.lose(v, "network-mode "+formats.Clip(mode), "")
		foreign(&r.n.Foreign)["network-mode"] = mode
	}
	r.modes[r.n.Name] = mode
	if p, ok := r.l[3]["mgmt-ipv4"]; ok { // only the node's own counts
		if s := r.text(p.Value, r.subject+": mgmt-ipv4"); s != "" {
			a, err := netip.ParseAddr(s)
			if err != nil || !a.Is4() {
				r.Bad(p.Value, "write 172.20.20.11", "%s: mgmt-ipv4: %s is not an IPv4 address", r.subject, p.Value)
			} else if mode != "none" {
				r.n.Management = a
			}
		}
	}
	for _, a := range r.merged(r.l, "sysctls", r.subject) {
		if !strings.HasPrefix(a.Name, "net.") {
			r.lose(a.at, "sysctls: "+formats.Clip(a.Name), "a node has settings of its network alone")
			continue
		}
		r.n.Sysctls = append(r.n.Sysctls, a.Assignment)
	}
	if v := r.l.get("ports"); v != nil {
		for _, e := range r.listOf(v, r.subject+": ports") {
			r.ports(e)
		}
	}
}

// maxRange is the maximum number of ports that one entry may publish.
const maxRange = 1000

// ports reads 8080:80, 192.0.2.1:8080:80/tcp and ranges of ports.
func (r *nodeReader) ports(e item) {
	wrong := func() {
		r.Bad(e.Value, "write 8080:80", "%s: ports: %q is not a port of the machine and one of the node", r.subject,
			formats.Clip(e.text))
	}
	spec, protocol, _ := strings.Cut(e.text, "/")
	protocol = strings.ToLower(protocol)
	if protocol != "" && protocol != "tcp" && protocol != "udp" {
		r.lose(e.Value, "ports: "+formats.Clip(e.text), "only TCP and UDP ports of the machine lead to nodes")
		return
	}
	last := strings.LastIndexByte(spec, ':')
	if last < 0 {
		r.lose(e.Value, "ports: "+formats.Clip(e.text), "name the port of the machine: 8080:80")
		return
	}
	address, machine := "0.0.0.0", spec[:last]
	if i := strings.LastIndexByte(machine, ':'); i >= 0 {
		address, machine = machine[:i], machine[i+1:]
	}
	from, n1, ok1 := portRange(machine)
	to, n2, ok2 := portRange(spec[last+1:])
	if !ok1 || !ok2 || n1 != n2 || n1 > maxRange || !r.Spend(e.Value, n1) {
		wrong()
		return
	}
	for i := range n1 {
		p, err := topology.ParsePublished(address + ":" + strconv.Itoa(from+i) + ":" + strconv.Itoa(to+i) + "/" +
			cmp.Or(protocol, "tcp"))
		if err != nil {
			wrong()
			return
		}
		if p.Address == netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
			p.Address = netip.Addr{} // Trivet's own default
		}
		r.n.Ports = append(r.n.Ports, p)
	}
}

// portRange reads a port, such as 80, or a range, such as 8000-8010, and returns the first port and
// the number of ports.
func portRange(s string) (first, n int, ok bool) {
	a, b, isRange := strings.Cut(s, "-")
	if !isRange {
		b = a
	}
	first, err1 := strconv.Atoi(a)
	last, err2 := strconv.Atoi(b)
	return first, last - first + 1, err1 == nil && err2 == nil && first > 0 && last >= first && last <= 65535
}

// start makes the start command from exec. Like containerlab, it splits lines into words and runs
// them in order, without a shell, whether or not the previous ones failed.
func (r *nodeReader) start() {
	var lines [][]string
	for _, e := range r.joined(r.l, "exec", r.subject) {
		if !r.Spend(e.Value, 4) { // splitting takes longer than reading
			return
		}
		line, err := shlex.Split(r.names.Replace(e.text))
		switch {
		case err != nil:
			r.Bad(e.Value, "close the quote", "%s: exec: %q: %s", r.subject, formats.Clip(e.text), err)
		case len(line) > 0:
			lines = append(lines, line)
		}
	}
	r.n.Start = startOf(lines)
	r.n.StartMayFail = r.n.Start != ""
}

// startOf returns a command for a shell that runs the given commands one after another.
func startOf(lines [][]string) string {
	if len(lines) == 1 && len(lines[0]) == 3 && lines[0][0] == "sh" && lines[0][1] == "-c" {
		return lines[0][2] // the start command is run by a shell anyway
	}
	commands := lists.Map(lines, func(l []string) string { return words.Shell(l...) })
	return strings.Join(commands, "\n")
}

// dirs reads which of the machine's files a node sees, and which directories it has in memory.
func (r *nodeReader) dirs() {
	at := map[string]int{}
	add := func(d topology.PrivateDir) {
		key := path.Clean(d.Path)
		if i, ok := at[key]; ok {
			r.n.Dirs[i] = d
			return
		}
		at[key] = len(r.n.Dirs)
		r.n.Dirs = append(r.n.Dirs, d)
	}
	for _, a := range r.merged(r.l, "tmpfs", r.subject) {
		if r.mountable(a.at, a.Name) {
			add(topology.PrivateDir{Path: a.Name})
		}
	}
	for _, e := range r.joined(r.l, "binds", r.subject) {
		parts := strings.Split(e.text, ":")
		if len(parts) < 2 || len(parts) > 3 || parts[0] == "" {
			r.Bad(e.Value, "write ./daemons:/etc/frr/daemons, and :ro after it if nothing may change it",
				"%s: binds: %q is not a file and where it is shown", r.subject, formats.Clip(e.text))
			continue
		}
		d := topology.PrivateDir{Path: parts[1], Source: r.source(parts[0])}
		for _, mode := range strings.Split(strings.Join(parts[2:], ""), ",") {
			switch mode {
			case "", "rw", "z", "Z", "cached", "delegated", "consistent", "nocopy":
			case "ro":
				d.ReadOnly = true
			default:
				r.lose(e.Value, "binds: mode "+formats.Clip(mode), "")
			}
		}
		if r.mountable(e.Value, d.Path) {
			add(d)
		}
	}
	slices.SortFunc(r.n.Dirs, func(a, b topology.PrivateDir) int {
		return strings.Compare(path.Clean(a.Path),
			path.Clean(b.Path))
	}) // directories in others come after these
}

// mountable says whether something can be mounted at a path of a node.
func (r *nodeReader) mountable(at *yamlfile.Value, p string) bool {
	if !path.IsAbs(p) || path.Clean(p) == "/" || slices.Contains(strings.Split(p, "/"), "..") ||
		strings.Contains(p, "\x00") {
		r.Bad(at, "write an absolute path below /, without ..", "%s: %q cannot be where something is shown",
			r.subject, formats.Clip(p))
		return false
	}
	top, _, _ := strings.Cut(strings.TrimPrefix(path.Clean(p), "/"), "/")
	if top == "proc" || top == "sys" || path.Clean(p) == "/dev" {
		r.lose(at, "showing something at "+formats.Clip(p), "the kernel's files are a node's own")
		return false
	}
	return true
}

// source returns a path of the machine; ~ stands for the home of the user who asked for the lab.
func (r *nodeReader) source(p string) string {
	p = r.names.Replace(p)
	rest, ok := strings.CutPrefix(p, "~")
	if !ok || rest != "" && rest[0] != '/' {
		return p
	}
	home, _ := os.UserHomeDir()
	if u, err := user.Lookup(os.Getenv("SUDO_USER")); err == nil && os.Geteuid() == 0 {
		home = u.HomeDir
	}
	return filepath.Join(home, rest)
}

// limits reads which processors a node may use, and how much of them and of memory.
func (r *nodeReader) limits() {
	if s, v := r.word(r.l, "cpu", r.subject); v != nil && s != "0" {
		cpu, err := topology.ParseCPU(s)
		if err != nil || cpu.CPUs == 0 {
			r.Bad(v, "write 0.5", "%s: cpu: %s is not a number of processors", r.subject, v)
		}
		r.n.CPU = cpu
	}
	if s, v := r.word(r.l, "cpu-set", r.subject); v != nil {
		for _, part := range strings.Split(s, ",") {
			a, b, isRange := strings.Cut(strings.TrimSpace(part), "-")
			if !isRange {
				b = a
			}
			first, err1 := strconv.Atoi(a)
			last, err2 := strconv.Atoi(b)
			if err1 != nil || err2 != nil || first < 0 || last < first || last > 4095 || !r.Spend(v, last-first+1) {
				r.Bad(v, "write 0-3,8", "%s: cpu-set: %s is not a list of processors", r.subject, v)
				return
			}
			for c := first; c <= last; c++ {
				r.n.Cores = append(r.n.Cores, c)
			}
		}
	}
}

// restarts are the restart policies of containerlab.
var restarts = []topology.Restart{topology.NoRestart, topology.OnFailure, topology.Always, topology.UnlessStopped}

// container reads what only containers have.
func (r *nodeReader) container() {
	n := r.n
	switch r.prefix {
	case "":
		n.ContainerName = n.Name
	case "__lab-name":
		n.ContainerName = r.t.Name + "-" + n.Name
	default:
		n.ContainerName = r.prefix + "-" + r.t.Name + "-" + n.Name
	}
	n.Entrypoint, n.Cmd = r.command("entrypoint"), r.command("cmd")
	for _, a := range r.merged(r.l, "env", r.subject) {
		if a.Name == "__IMPORT_ENVS" {
			r.lose(a.at, "env: __IMPORT_ENVS", "name the variables")
			continue
		}
		n.Env = append(n.Env, a.Assignment)
	}
	n.User, _ = r.word(r.l, "user", r.subject)
	if s, v := r.word(r.l, "restart-policy", r.subject); s != "" {
		if n.Restart = topology.Restart(s); !slices.Contains(restarts, n.Restart) {
			r.Bad(v, "write no, on-failure, always or unless-stopped", "%s: restart-policy: %s is none", r.subject, v)
		}
	}
	if s, v := r.word(r.l, "memory", r.subject); v != nil {
		bytes, err := humanize.ParseBytes(s)
		if err != nil || bytes == 0 || bytes > 1<<62 {
			r.Bad(v, "write 512MiB, or 1Gb", "%s: memory: %s is not a size", r.subject, v)
		} else {
			n.Memory = topology.Bytes(bytes)
		}
	}
	for _, e := range r.joined(r.l, "cap-add", r.subject) {
		n.Capabilities = append(n.Capabilities, strings.ToUpper(e.text))
	}
	for _, e := range r.joined(r.l, "devices", r.subject) {
		device, rest, _ := strings.Cut(e.text, ":")
		if there, access, _ := strings.Cut(rest, ":"); there != "" && there != device ||
			access != "" && access != "rwm" {
			r.lose(e.Value, "devices: what follows "+formats.Clip(device), "a device has its own name and all access")
		}
		n.Devices = append(n.Devices, device)
	}
	n.Privileged = true
	if s, v := r.word(r.l, "privileged", r.subject); v != nil {
		switch strings.ToLower(s) {
		case "true", "yes", "on", "y":
		case "false", "no", "off", "n":
			n.Privileged = false
		default:
			r.Bad(v, "write true or false", "%s: privileged: %s is neither true nor false", r.subject, v)
		}
	}
}

// command reads a program and its arguments.
func (r *nodeReader) command(key string) topology.Words {
	s, v := r.word(r.l, key, r.subject)
	list, err := shlex.Split(s)
	if err != nil {
		r.Bad(v, "close the quote", "%s: %s: %q: %s", r.subject, key, formats.Clip(s), err)
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// health reads how to find out whether a container is ready.
func (r *nodeReader) health() {
	v := r.l.get("healthcheck")
	if v == nil {
		return
	}
	rest := map[string]any{}
	for _, p := range r.Mapping(v, r.subject+": healthcheck") {
		if p.Key.Text != "test" {
			r.lose(p.Key, "healthcheck: "+formats.Clip(p.Key.Text), "")
			r.Keep(rest, p)
			continue
		}
		test := lists.Map(r.listOf(p.Value, r.subject+": healthcheck: test"), func(e item) string { return e.text })
		switch {
		case len(test) == 0 || test[0] == "NONE":
		case test[0] == "CMD" && len(test) > 1:
			r.n.Health = words.Shell(test[1:]...)
		case test[0] == "CMD-SHELL" && len(test) == 2:
			r.n.Health = test[1]
		default:
			r.Bad(p.Value, "write [CMD-SHELL, curl -f localhost]",
				"%s: healthcheck: test begins with neither CMD nor CMD-SHELL", r.subject)
		}
	}
	if len(rest) > 0 {
		foreign(&r.n.Foreign)["healthcheck"] = rest
	}
}

// stages reads which nodes must be up before a container is made.
func (r *nodeReader) stages() {
	lost := false
	lose := func(at *yamlfile.Value, what string) {
		r.lose(at, "stages: "+what, "only before its program begins a container waits for others to be ready: create")
		lost = true
	}
	for _, v := range r.l.all("stages") {
		for _, stage := range r.Mapping(v, r.subject+": stages") {
			for _, p := range r.Mapping(stage.Value, r.subject+": stages: "+formats.Clip(stage.Key.Text)) {
				if stage.Key.Text != "create" || p.Key.Text != "wait-for" {
					lose(p.Key, formats.Clip(stage.Key.Text)+": "+formats.Clip(p.Key.Text))
					continue
				}
				for _, w := range r.List(p.Value, r.subject+": stages: wait-for") {
					other, until := "", ""
					for _, e := range r.Mapping(w, r.subject+": stages: wait-for") {
						switch e.Key.Text {
						case "node":
							other = r.text(e.Value, "node")
						case "stage":
							until = r.text(e.Value, "stage")
						}
					}
					switch {
					case other == "":
						r.Bad(w, "write {node: r1, stage: healthy}", "%s: stages: wait-for names no node", r.subject)
					case until == "exit" || until == "configure":
						lose(w, "wait-for until "+until)
					case !slices.Contains(r.n.After, other):
						r.n.After = append(r.n.After, other)
					}
				}
			}
		}
	}
	if lost {
		if v := r.l.get("stages"); v != nil {
			r.Keep(foreign(&r.n.Foreign), yamlfile.Pair{Key: &yamlfile.Value{Pos: v.Pos, Text: "stages"}, Value: v})
		}
	}
}
