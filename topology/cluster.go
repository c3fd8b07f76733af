package topology

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Cluster says that Trivet's own controller is several processes, its members, which share the
// switches: each switch connects to all of them.
type Cluster struct {
	Members []Member `json:"members"`
	CPU     CPU      `json:"cpu,omitzero"`     // limit of each member that has none of its own
	Store   *Server  `json:"store,omitempty"`  // an etcd that is not the lab's; nil: the lab runs its own
	Broker  *Server  `json:"broker,omitempty"` // a RabbitMQ that is not the lab's; nil: the lab runs its own

	Pos Position `json:"-"`
}

// Member is a process of the controller.
type Member struct {
	Name string `json:"name"`
	CPU  CPU    `json:"cpu,omitzero"`
	On   string `json:"on,omitempty"` // the site that it runs at, or a label of sites; empty: not chosen, or the head

	Pos Position `json:"-"`
}

// Server is a server that a lab uses but does not run. Its files are relative to the topology's.
type Server struct {
	Address     string `json:"address"`
	CA          string `json:"ca,omitempty"`          // file with the certificates of the authorities for the server's
	Certificate string `json:"certificate,omitempty"` // file with the client certificate
	Key         string `json:"key,omitempty"`         // file with its private key
	Login       string `json:"login,omitempty"`       // file with user:password

	Pos Position `json:"-"`
}

// MaxMembers is the maximum number of members of a cluster.
const MaxMembers = 16

// memberName matches names that are safe in file names, cgroups and keys.
var memberName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,23}$`)

// NumberedMembers returns n members with default names: c1, c2, and so on.
func NumberedMembers(n int) []Member {
	out := make([]Member, n)
	for i := range out {
		out[i].Name = fmt.Sprintf("c%d", i+1)
	}
	return out
}

// Members returns the members of the topology's cluster; none if it has no cluster.
func (t *Topology) Members() []Member {
	if t.Cluster == nil {
		return nil
	}
	return t.Cluster.Members
}

// CPUOf returns the limit of a member.
func (c *Cluster) CPUOf(m Member) CPU {
	if m.CPU != (CPU{}) {
		return m.CPU
	}
	return c.CPU
}

// Sited returns the site that a member runs at, in a topology that has been placed.
func (m Member) Sited() string { return cmp.Or(m.On, Head) }

// Numbered says whether the members have no names, limits and places of their own.
func (c *Cluster) Numbered() bool {
	return slices.EqualFunc(c.Members, NumberedMembers(len(c.Members)), func(m, n Member) bool {
		return m.Name == n.Name && m.CPU == (CPU{}) && m.On == ""
	})
}

// Clone returns a deep copy.
func (c *Cluster) Clone() *Cluster {
	if c == nil {
		return nil
	}
	out := *c
	out.Members = slices.Clone(c.Members)
	out.Store, out.Broker = clonePointer(c.Store), clonePointer(c.Broker)
	return &out
}

// WithoutPositions returns a copy without positions in a file.
func (c *Cluster) WithoutPositions() *Cluster {
	out := c.Clone()
	out.Pos = Position{}
	for i := range out.Members {
		out.Members[i].Pos = Position{}
	}
	for _, s := range []*Server{out.Store, out.Broker} {
		if s != nil {
			s.Pos = Position{}
		}
	}
	return out
}

// filesFrom resolves relative names of files against a directory.
func (c *Cluster) filesFrom(dir string) {
	for _, s := range []*Server{c.Store, c.Broker} {
		if s == nil {
			continue
		}
		for _, file := range []*string{&s.CA, &s.Certificate, &s.Key, &s.Login} {
			if *file != "" && !filepath.IsAbs(*file) {
				*file = filepath.Join(dir, *file)
			}
		}
	}
}

// String describes the cluster for users; different clusters have different descriptions.
func (c *Cluster) String() string {
	if c == nil {
		return "none"
	}
	var words []string
	for _, m := range c.Members {
		var options []string
		if m.CPU != (CPU{}) {
			options = append(options, "cpu "+m.CPU.String())
		}
		if m.On != "" {
			options = append(options, "on "+m.On)
		}
		word := m.Name
		if len(options) > 0 {
			word += " (" + strings.Join(options, ", ") + ")"
		}
		words = append(words, word)
	}
	out := strings.Join(words, ", ")
	if c.CPU != (CPU{}) {
		out += "; cpu " + c.CPU.String()
	}
	return out + c.Store.named("store") + c.Broker.named("broker")
}

func (s *Server) named(what string) string {
	if s == nil {
		return ""
	}
	out := "; " + what + " " + s.Address
	for _, file := range []string{s.CA, s.Certificate, s.Key, s.Login} {
		if file != "" {
			out += " " + file
		}
	}
	return out
}

// SameServers says whether two clusters have the same store and broker.
func (c *Cluster) SameServers(d *Cluster) bool {
	return c.Store.named("") == d.Store.named("") && c.Broker.named("") == d.Broker.named("")
}

// cluster checks a cluster's members; its servers are checked by whoever makes labs.
func (v *validator) cluster() {
	c := v.t.Cluster
	if c == nil {
		return
	}
	if n := len(c.Members); n == 0 || n > MaxMembers {
		v.problems.Add(c.Pos, fmt.Sprintf("write 3, or a number from 1 to %d", MaxMembers),
			"cluster: it cannot have %d members", n)
	}
	seen := map[string]bool{}
	for _, m := range c.Members {
		switch {
		case !memberName.MatchString(m.Name):
			v.problems.Add(m.Pos, "use up to 24 letters, digits, dashes and underscores",
				"cluster: %q cannot be a member's name", clip(m.Name))
		case seen[strings.ToLower(m.Name)]:
			v.problems.Add(m.Pos, "names must be unique", "cluster: there is already a member %s", m.Name)
		}
		seen[strings.ToLower(m.Name)] = true
	}
	for i, s := range []*Server{c.Store, c.Broker} {
		what := []string{"store", "broker"}[i]
		switch {
		case s == nil:
		case s.Address == "":
			v.problems.Add(s.Pos, "write address: URL", "cluster: the %s has no address", what)
		case (s.Certificate == "") != (s.Key == ""):
			v.problems.Add(s.Pos, "give both, or none",
				"cluster: the %s has a certificate without a key, or a key without a certificate", what)
		}
	}
}

// members overrides the number of members if the user has asked for that.
func (d Defaults) members(t *Topology) {
	switch {
	case d.OverrideMembers == 1:
		t.Cluster = nil
	case d.OverrideMembers > 1:
		if t.Cluster == nil {
			t.Cluster = &Cluster{Pos: t.Pos}
		}
		t.Cluster.Members = NumberedMembers(d.OverrideMembers)
	}
}

// unclustered warns of a cluster that is the controller of no node.
func (r *resolver) unclustered() {
	if c := r.t.Cluster; c != nil && !slices.ContainsFunc(r.t.Nodes, func(n *Node) bool {
		return n.IsDatapath() && slices.Contains(n.Controllers, ControllerTrivet)
	}) {
		r.problems.Warn(c.Pos, "give some switches controller: trivet, or leave cluster out",
			"cluster: no switch and no router has it for a controller")
	}
}
