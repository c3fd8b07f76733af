package site

import (
	"bufio"
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// Inventories of Ansible: https://docs.ansible.com/ansible/latest/inventory_guide/. Groups become
// labels; of the variables, those that say how to log in are read.

// ansibleBudget limits how many groups and hosts are visited: aliases can make a small file large.
const ansibleBudget = 100_000

// readGroup reads a group, and those within it, which have the variables of the groups around them
// unless they say otherwise.
func (l *List) readGroup(q yamlfile.Pair, labels []string, around map[string]string, p *topology.Problems, budget *int) {
	if *budget--; *budget < 0 {
		return
	}
	if name := q.Key.Text; name != "all" && name != "ungrouped" && labelPattern.MatchString(name) {
		labels = append(slices.Clone(labels), name)
	}
	groupVars := variables(q.Value.Get("vars"), around)
	if hosts := q.Value.Get("hosts"); hosts != nil {
		for _, h := range hosts.Pairs {
			if *budget--; *budget < 0 {
				return
			}
			l.addHost(h.Key.Text, h.Key.Pos, variables(h.Value, groupVars), labels, p)
		}
	}
	if children := q.Value.Get("children"); children != nil {
		for _, c := range children.Pairs {
			l.readGroup(c, labels, groupVars, p, budget)
		}
	}
}

// variables returns those of a mapping, which may be nil, and those around it.
func variables(own *yamlfile.Value, around map[string]string) map[string]string {
	if own == nil {
		return around
	}
	all := map[string]string{}
	maps.Copy(all, around)
	for _, v := range own.Pairs {
		all[v.Key.Text] = v.Value.Text
	}
	return all
}

// readINI reads [group], [group:vars] and [group:children] sections.
func (l *List) readINI(file string, data []byte, p *topology.Problems) {
	type host struct {
		line   int
		vars   map[string]string
		labels []string
	}
	hosts, order := map[string]*host{}, []string{}
	groupVars, children := map[string]map[string]string{}, map[string][]string{}
	group, kind := "", ""
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		words := fields(lines.Text())
		switch {
		case len(words) == 0:
		case strings.HasPrefix(words[0], "["):
			section, ok := strings.CutSuffix(strings.TrimPrefix(words[0], "["), "]")
			group, kind, _ = strings.Cut(section, ":")
			if !ok || len(words) > 1 || !slices.Contains([]string{"", "vars", "children"}, kind) {
				p.Add(at(file, n), "write [group], [group:vars] or [group:children]", "%q begins no section", lines.Text())
				return
			}
		case kind == "children":
			children[group] = append(children[group], words[0])
		case kind == "vars":
			name, value, _ := strings.Cut(lines.Text(), "=")
			if groupVars[group] == nil {
				groupVars[group] = map[string]string{}
			}
			groupVars[group][strings.TrimSpace(name)] = unquoted(strings.TrimSpace(value))
		default:
			for _, name := range expand(words[0]) {
				h := hosts[name]
				if h == nil {
					h = &host{line: n, vars: map[string]string{}}
					hosts[name], order = h, append(order, name)
				}
				if group != "" {
					h.labels = append(h.labels, group)
				}
				for _, w := range words[1:] {
					k, v, _ := strings.Cut(w, "=")
					h.vars[k] = unquoted(v)
				}
				if len(order) > MaxMachines {
					p.Add(at(file, n), "leave some out", "more than %d machines", MaxMachines)
					return
				}
			}
		}
	}
	if err := lines.Err(); err != nil {
		p.Add(at(file, 0), "", "%v", err)
		return
	}
	for _, name := range order {
		h := hosts[name]
		for range children { // as deep as groups can be nested
			for parent, list := range children {
				if !slices.Contains(h.labels, parent) && slices.ContainsFunc(list, func(c string) bool { return slices.Contains(h.labels, c) }) {
					h.labels = append(h.labels, parent)
				}
			}
		}
		for _, g := range append([]string{"all"}, h.labels...) {
			for k, v := range groupVars[g] {
				if h.vars[k] == "" {
					h.vars[k] = v
				}
			}
		}
		l.addHost(name, at(file, h.line), h.vars, slices.DeleteFunc(h.labels, func(s string) bool { return s == "all" || s == "ungrouped" || !labelPattern.MatchString(s) }), p)
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

// addHost adds a host of an inventory, unless it is there already through another group; localhost
// is the head.
func (l *List) addHost(name string, pos topology.Position, vars map[string]string, labels []string, p *topology.Problems) {
	if vars["ansible_connection"] == "local" || name == "localhost" {
		l.Head.Labels = append(l.Head.Labels, labels...)
		return
	}
	if m := l.Machine(name); m != nil {
		for _, label := range labels {
			if !slices.Contains(m.Labels, label) {
				m.Labels = append(m.Labels, label)
			}
		}
		return
	}
	target := cmp.Or(vars["ansible_host"], vars["ansible_ssh_host"], name)
	if strings.Contains(target, "{{") {
		p.Add(pos, "write what it stands for", "host %s: ansible_host is a template, which only Ansible can fill in", name)
		return
	}
	if user := cmp.Or(vars["ansible_user"], vars["ansible_ssh_user"]); user != "" {
		target = user + "@" + target
	}
	m := parseTarget(target, pos, p)
	if m == nil {
		return
	}
	if port := cmp.Or(vars["ansible_port"], vars["ansible_ssh_port"]); port != "" {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 {
			p.Add(pos, "ports are 1 to 65535", "host %s: %q is not a port", name, port)
			return
		}
		m.Port = n
	}
	if !namePattern.MatchString(name) {
		p.Add(pos, "use letters, digits, '_', '.', '-', at most 40", "%q cannot be the name of a site", name)
		return
	}
	m.Name, m.Key, m.Labels = name, vars["ansible_ssh_private_key_file"], labels
	l.Machines = append(l.Machines, m)
}
