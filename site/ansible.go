package site

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// Ansible inventories: https://docs.ansible.com/ansible/latest/inventory_guide/. Groups become
// labels; of the variables, only those that say how to log in are read. A group gateway or
// gateways, as the C3-Edge testbed has one, makes the list a rack.

// ansibleBudget limits how many groups and hosts are visited: aliases can make a small file large.
const ansibleBudget = 100_000

// ansible reads Ansible inventories, the only source that accepts several files.
var ansible = &Source{
	Knows: func(g *Given) bool {
		return len(g.Files) > 1 || len(g.Files) == 1 && newInventory().read(g.Files[0], new(topology.Problems))
	},
	Read: func(g *Given, l *List, p *topology.Problems) {
		v := newInventory()
		for _, f := range g.Files {
			if !v.read(f, p) {
				p.Add(at(f.Name, 1), "name one file, or Ansible's", "only an inventory of Ansible may be several files")
			}
		}
		v.into(l, p)
	},
}

// inventory is the merged content of one or more inventory files.
type inventory struct {
	hosts  map[string]*inventoryHost
	order  []string // hosts, in the order of the files
	groups map[string]*inventoryGroup
	budget int
}

type inventoryHost struct {
	pos    topology.Position
	vars   map[string]string
	groups []string
}

type inventoryGroup struct {
	vars    map[string]string
	parents []string
}

func newInventory() *inventory {
	return &inventory{map[string]*inventoryHost{}, nil, map[string]*inventoryGroup{}, ansibleBudget}
}

// group returns a group, which may be new.
func (v *inventory) group(name string) *inventoryGroup {
	if v.groups[name] == nil {
		v.groups[name] = &inventoryGroup{vars: map[string]string{}}
	}
	return v.groups[name]
}

// add adds hosts to a group; "": to none. names may be a range.
func (v *inventory) add(names, group string, pos topology.Position, p *topology.Problems) (out []*inventoryHost) {
	for _, name := range expand(names) {
		h := v.hosts[name]
		if h == nil {
			h = &inventoryHost{pos: pos, vars: map[string]string{}}
			v.hosts[name], v.order = h, append(v.order, name)
		}
		if group != "" && !slices.Contains(h.groups, group) {
			h.groups = append(h.groups, group)
		}
		out = append(out, h)
		if len(v.order) > MaxMachines+1 { // and the gateway
			p.Add(pos, "leave some out", "more than %d machines", MaxMachines)
			v.budget = 0
			break
		}
	}
	return out
}

// read reads a file if it is an inventory.
func (v *inventory) read(f File, p *topology.Problems) bool {
	if isINI(f.Name, f.Data) {
		v.readINI(f.Name, f.Data, p)
		return true
	}
	root, _ := yamlfile.Dialect{Tags: true}.Parse(f.Name, f.Data) // Tags: !vault and the like
	if root == nil || !isInventory(root) {
		return false
	}
	for _, q := range root.Pairs {
		v.readYAML(q, "", p)
	}
	return true
}

// isINI reports whether an Ansible inventory is in INI rather than YAML.
func isINI(file string, data []byte) bool {
	if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)) {
		return false
	}
	for _, line := range bytes.Split(data, []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' || line[0] == ';' {
			continue
		}
		return line[0] == '[' || bytes.Contains(line, []byte("ansible_")) || !bytes.ContainsAny(line, ":-")
	}
	return false
}

// isInventory reports whether a YAML file is an inventory rather than one of Trivet's own lists.
func isInventory(root *yamlfile.Value) bool {
	return root.Shape == yamlfile.Mapping && root.Get("machines") == nil &&
		slices.ContainsFunc(root.Pairs, func(q yamlfile.Pair) bool {
			return slices.ContainsFunc([]string{"hosts", "children", "vars"},
				func(key string) bool { return q.Value.Get(key) != nil }) && q.Key.Text != "devices"
		})
}

// readYAML reads a group and its child groups.
func (v *inventory) readYAML(q yamlfile.Pair, parent string, p *topology.Problems) {
	if v.budget--; v.budget < 0 {
		return
	}
	name := q.Key.Text
	g := v.group(name)
	if parent != "" && !slices.Contains(g.parents, parent) {
		g.parents = append(g.parents, parent)
	}
	set := func(to map[string]string, from *yamlfile.Value) {
		if from == nil {
			return
		}
		for _, x := range from.Pairs {
			to[x.Key.Text] = x.Value.Text
		}
	}
	set(g.vars, q.Value.Get("vars"))
	if hosts := q.Value.Get("hosts"); hosts != nil {
		for _, h := range hosts.Pairs {
			if v.budget--; v.budget < 0 {
				return
			}
			for _, host := range v.add(h.Key.Text, name, h.Key.Pos, p) {
				set(host.vars, h.Value)
			}
		}
	}
	if children := q.Value.Get("children"); children != nil {
		for _, c := range children.Pairs {
			v.readYAML(c, name, p)
		}
	}
}

// readINI reads [group], [group:vars] and [group:children] sections.
func (v *inventory) readINI(file string, data []byte, p *topology.Problems) {
	group, kind := "", ""
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan() && v.budget > 0; n++ {
		words := fields(lines.Text())
		switch {
		case len(words) == 0:
		case strings.HasPrefix(words[0], "["):
			section, ok := strings.CutSuffix(strings.TrimPrefix(words[0], "["), "]")
			group, kind, _ = strings.Cut(section, ":")
			if !ok || len(words) > 1 || !slices.Contains([]string{"", "vars", "children"}, kind) {
				p.Add(at(file, n), "write [group], [group:vars] or [group:children]", "%q begins no section",
					lines.Text())
				return
			}
		case kind == "children":
			g := v.group(words[0])
			g.parents = append(g.parents, group)
		case kind == "vars":
			name, value, _ := strings.Cut(lines.Text(), "=")
			v.group(group).vars[strings.TrimSpace(name)] = unquoted(strings.TrimSpace(value))
		default:
			for _, h := range v.add(words[0], group, at(file, n), p) {
				for _, w := range words[1:] {
					k, value, _ := strings.Cut(w, "=")
					h.vars[k] = unquoted(value)
				}
			}
		}
		v.budget--
	}
	if err := lines.Err(); err != nil {
		p.Add(at(file, 0), "", "%v", err)
	}
}

// groupsOf lists the groups of a host: first its own, then their parents, and so on.
func (v *inventory) groupsOf(h *inventoryHost) []string {
	out := slices.Clone(h.groups)
	for i := 0; i < len(out); i++ {
		for _, parent := range v.group(out[i]).parents {
			if !slices.Contains(out, parent) {
				out = append(out, parent)
			}
		}
	}
	return out
}

// varsOf returns a host's variables. Its own take precedence over those of its groups, inner groups
// over outer ones; the group all comes last.
func (v *inventory) varsOf(h *inventoryHost, groups []string) map[string]string {
	out := maps.Clone(h.vars)
	for _, g := range append(slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return g == "all" }),
		"all") {
		for k, value := range v.group(g).vars {
			if _, has := out[k]; !has {
				out[k] = value
			}
		}
	}
	return out
}

// into adds the inventory's machines to a list.
func (v *inventory) into(l *List, p *topology.Problems) {
	gateway := ""
	for _, name := range v.order {
		h := v.hosts[name]
		groups := v.groupsOf(h)
		vars := v.varsOf(h, groups)
		labels := slices.DeleteFunc(groups,
			func(s string) bool { return s == "all" || s == "ungrouped" || !labelPattern.MatchString(s) })
		switch is := slices.ContainsFunc(labels, isGateways); {
		case is && gateway != "":
			p.Add(h.pos, "leave one in the group", "a rack has one gateway, not %s and %s", gateway, name)
		case is:
			gateway = name
			l.readGatewayVars(h.pos, vars, slices.DeleteFunc(labels, isGateways), p)
		default:
			l.addHost(name, h.pos, vars, labels, p)
		}
	}
	if gateway != "" {
		l.fillRack(p)
	}
}

func isGateways(group string) bool { return group == "gateway" || group == "gateways" }

// readGatewayVars reads the variables of a rack's gateway: nic_int and nic_ext are C3-Edge's names
// for its inner and outer interface.
func (l *List) readGatewayVars(pos topology.Position, vars map[string]string, labels []string, p *topology.Problems) {
	l.Head.Labels = append(l.Head.Labels, labels...)
	l.Head.Address, _ = netip.ParseAddr(vars["ansible_host"]) // invalid: determined later
	for name, to := range map[string]*string{"nic_int": &l.Head.NIC, "nic_ext": &l.Head.Outer} {
		if *to = vars[name]; *to != "" && !nicPattern.MatchString(*to) {
			p.Add(pos, "write its name:  "+name+": eth1", "gateway: %s: %q is not an interface", name, *to)
		}
	}
	if l.Head.NIC == "" {
		p.Add(pos, "add it:  nic_int: eth1",
			"the gateway lacks nic_int, the interface to which the devices are connected")
	}
}

// fields splits a line at blanks outside quotes, up to a comment.
func fields(line string) (out []string) {
	var word strings.Builder
	quote, inWord := rune(0), false
	end := func() {
		if inWord {
			out = append(out, word.String())
		}
		word.Reset()
		inWord = false
	}
	for _, r := range line {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
			word.WriteRune(r)
		case r == '#' && !inWord || r == ';' && !inWord:
			end()
			return out
		case r == ' ' || r == '\t' || r == '\r':
			end()
		default:
			if r == '"' || r == '\'' {
				quote = r
			}
			word.WriteRune(r)
			inWord = true
		}
	}
	end()
	return out
}

func unquoted(s string) string {
	if len(s) > 1 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

// expand returns the names of a range: pi[01:12] and pi-[a:c] (one range).
func expand(name string) []string {
	before, rest, ok := strings.Cut(name, "[")
	inner, after, closed := strings.Cut(rest, "]")
	first, last, isRange := strings.Cut(inner, ":")
	if !ok || !closed || !isRange {
		return []string{name}
	}
	var out []string
	if from, err := strconv.Atoi(first); err == nil {
		to, err := strconv.Atoi(last)
		for n := from; err == nil && n <= to && len(out) <= MaxMachines; n++ {
			digits := strconv.Itoa(n)
			out = append(out, before+strings.Repeat("0", max(0, len(first)-len(digits)))+digits+after)
		}
	} else if len(first) == 1 && len(last) == 1 {
		for c := first[0]; c <= last[0] && len(out) <= 26; c++ {
			out = append(out, before+string(c)+after)
		}
	}
	if len(out) == 0 {
		return []string{name}
	}
	return out
}

// addHost adds a host of an inventory; localhost is the head.
func (l *List) addHost(name string, pos topology.Position, vars map[string]string, labels []string,
	p *topology.Problems) {
	if vars["ansible_connection"] == "local" || name == "localhost" {
		l.Head.Labels = append(l.Head.Labels, labels...)
		return
	}
	target := filledIn(cmp.Or(vars["ansible_host"], vars["ansible_ssh_host"], name), name)
	if strings.Contains(target, "{{") {
		p.Add(pos, "write what it stands for",
			"host %s: ansible_host is a template that only Ansible can fill in", name)
		return
	}
	if user := cmp.Or(vars["ansible_user"], vars["ansible_ssh_user"]); user != "" {
		target = user + "@" + target
	}
	m := parseTarget(target, pos, p)
	if m == nil {
		return
	}
	number := func(what, text string, most int) int {
		n, err := strconv.Atoi(text)
		if text != "" && (err != nil || n < 1 || n > most) {
			p.Add(pos, fmt.Sprintf("%ss are 1 to %d", what, most), "host %s: %q is not a %s", name, text, what)
		}
		return n
	}
	m.Port = cmp.Or(number("port", cmp.Or(vars["ansible_port"], vars["ansible_ssh_port"]), 65535), m.Port)
	m.VLAN = uint16(number("VLAN", vars["vlan"], maxVLAN))
	if !namePattern.MatchString(name) {
		p.Add(pos, "use letters, digits, '_', '.', '-', at most 40", "%q cannot be the name of a site", name)
		return
	}
	m.Name, m.Key, m.Labels = name, vars["ansible_ssh_private_key_file"], labels
	l.Machines = append(l.Machines, m)
}

var (
	template = regexp.MustCompile(`\{\{\s*(.*?)\s*\}\}`)
	numbered = regexp.MustCompile(`^'%(0?\d?)d'\s*\|\s*format\(\s*inventory_hostname\.split\('([^']+)'\)\[(\d)\]\s*\|\s*int\s*\)$`)
)

// filledIn fills in templates that derive an address from a host's name, as C3-Edge's do:
// 10.42.0.1{{ '%02d'|format(inventory_hostname.split('node')[1]|int) }}. Other templates stay as
// they are.
func filledIn(s, host string) string {
	return template.ReplaceAllStringFunc(s, func(whole string) string {
		inner := template.FindStringSubmatch(whole)[1]
		if inner == "inventory_hostname" {
			return host
		}
		f := numbered.FindStringSubmatch(inner)
		if f == nil {
			return whole
		}
		parts := strings.Split(host, f[2])
		i, _ := strconv.Atoi(f[3])
		if i >= len(parts) {
			return whole
		}
		n, _ := strconv.Atoi(parts[i]) // 0 if it is no number, as with Jinja's int
		return fmt.Sprintf("%"+f[1]+"d", n)
	})
}
