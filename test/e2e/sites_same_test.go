package e2e

import (
	"fmt"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// TestSitesSame proves that a lab over three machines is the one that it is on one machine: the
// same nodes, interfaces, ports and addresses, by the same names, and the same ways between hosts,
// all of which reach each other.
func TestSitesSame(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]string{"campus": example("campus.yaml"), "fat-tree": "fat-tree,4", "linear": "linear,40"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSeveral(t, 2)
			h := s.head
			var hosts []string
			var pairs [][2]string
			type look struct {
				nodes, links string
				paths, names []string
			}
			lookAt := func(options ...string) (l look) {
				contains(t, h.up(append([]string{what, "--name", h.name}, options...)...), "up in")
				is := jsonOf[struct {
					Topology *topology.Topology `json:"topology"`
				}](h, "inspect").Topology
				for _, n := range is.Nodes {
					n.On = ""
					l.nodes += fmt.Sprintf("%s %s %s %s %s\n", n.Name, n.Kind, n.DPID, n.Datapath, n.Loopback)
					if n.Kind == topology.Host && len(options) == 0 {
						hosts = append(hosts, n.Name)
					}
				}
				for _, k := range is.Links {
					for _, e := range k.Ends {
						l.links += fmt.Sprintf("%s %s %s %s  ", e.Node, e.Interface, e.MAC, e.Addresses)
						if e.Port != nil {
							l.links += fmt.Sprintf("port %d  ", *e.Port)
						}
					}
					l.links += "\n"
				}
				for draw := newRandom(t); len(pairs) < 12; {
					pairs = append(pairs, [2]string{hosts[draw.IntN(len(hosts))], hosts[draw.IntN(len(hosts))]})
				}
				eventually(t, "all hosts reach each other", func() bool { return strings.Contains(h.run("ping", "--all", "--timeout", "30s").out, ", 0 % lost") })
				for _, p := range pairs {
					if p[0] != p[1] {
						way, _, _ := strings.Cut(h.ok("path", p[0], p[1]), "\n") // and not its load
						l.paths = append(l.paths, p[0]+" to "+p[1]+": "+way+"\n")
						l.names = append(l.names, h.exec(p[0], "ip -o -4 addr show | sed s/@if[0-9]*//; ip route; sort /etc/hosts; getent hosts "+p[1]))
					}
				}
				h.ok("down", h.name)
				s.unchanged(t)
				return l
			}
			one, several := lookAt(), lookAt("--on", "machines.yaml")
			if one.nodes != several.nodes || one.links != several.links {
				t.Errorf("on one machine:\n%s%s\nover several:\n%s%s", one.nodes, one.links, several.nodes, several.links)
			}
			for i := range one.paths {
				if one.paths[i] != several.paths[i] || one.names[i] != several.names[i] {
					t.Errorf("on one machine:\n%s%s\nover several:\n%s%s", one.paths[i], one.names[i], several.paths[i], several.names[i])
				}
			}
		})
	}
}
