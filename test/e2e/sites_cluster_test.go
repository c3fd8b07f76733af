package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// members waits until each of the lab's three members is alive and connected to so many switches,
// and returns the master of each switch.
func (m *machine) members(switches int, but ...string) (master map[string]string) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("the members are alive and connected to %d switches, but %v", switches, but), func() bool {
		var s struct {
			Members []struct {
				Name      string
				Alive     bool
				Connected int
			}
			Switches []struct{ Name, DPID, Master string }
		}
		r := m.run("cluster", "status", "--json")
		if r.code != 0 || json.Unmarshal([]byte(r.out), &s) != nil || len(s.Switches) != switches {
			return false
		}
		whole := 0
		for _, is := range s.Members {
			if is.Alive && is.Connected == switches {
				whole++
			}
		}
		master = map[string]string{}
		for _, w := range s.Switches {
			if w.Master == "" {
				return false
			}
			for _, name := range but {
				if w.Master == name {
					return false
				}
			}
			master[w.Name] = w.Master
		}
		return whole == 3-len(but)
	})
	return master
}

// TestSitesCluster proves …
func TestSitesCluster(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 2)
	h := s.head
	h.withServers()
	h.up("linear,6", "--on", "machines.yaml", "--name", h.name, "--controllers", "3", "--wait", "1m")
	fmt.Println(h.ok("inspect"))
	fmt.Println(h.ok("cluster", "status"))
	contains(t, h.ok("ping", "--all"), "30 sent, 30 received")
	fmt.Println(h.members(6))
	h.ok("down", h.name)
	s.unchanged(t)
	_ = strings.Contains
}
