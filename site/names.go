package site

import (
	"regexp"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
)

// names reads machines given by name, as for ssh, separated by commas.
var names = &Source{
	Knows: func(g *Given) bool { return len(g.Files) == 0 && g.missing == nil },
	Read: func(g *Given, l *List, p *topology.Problems) {
		for word := range strings.SplitSeq(g.Argument, ",") {
			if m := parseTarget(strings.TrimSpace(word), topology.Position{}, p); m != nil {
				l.Machines = append(l.Machines, m)
			}
		}
	},
}

// parseTarget parses user@host:port; an IPv6 address with a port is in brackets.
func parseTarget(s string, pos topology.Position, p *topology.Problems) *Machine {
	m := &Machine{Pos: pos}
	rest := s
	if at := strings.LastIndex(s, "@"); at >= 0 {
		m.User, rest = s[:at], s[at+1:]
		if !userPattern.MatchString(m.User) {
			p.Add(pos, "write user@host, user@host:port or host", "%q is not a user's name", m.User)
			return nil
		}
	}
	host, port := rest, ""
	if inner, after, ok := strings.Cut(strings.TrimPrefix(rest, "["), "]"); ok && strings.HasPrefix(rest, "[") {
		host, port = inner, strings.TrimPrefix(after, ":")
		if after != "" && !strings.HasPrefix(after, ":") {
			host = rest
		}
	} else if strings.Count(rest, ":") == 1 {
		host, port, _ = strings.Cut(rest, ":")
	}
	if !hostPattern.MatchString(host) {
		p.Add(pos, "write user@host, user@host:port or host", "%q is not a machine", s)
		return nil
	}
	if m.Host = host; port != "" || strings.HasSuffix(rest, ":") {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 {
			p.Add(pos, "ports are 1 to 65535", "%q is not a port", port)
			return nil
		}
		m.Port = n
	}
	if m.Name = m.Host; !namePattern.MatchString(m.Name) {
		m.Name = strings.Trim(regexp.MustCompile(`[^A-Za-z0-9_.-]+`).ReplaceAllString(m.Host, "-"), "-._")
	}
	if !namePattern.MatchString(m.Name) {
		p.Add(pos, "give it a name in a file of machines: m1: "+s, "%q is too long for the name of a site", s)
		return nil
	}
	return m
}
