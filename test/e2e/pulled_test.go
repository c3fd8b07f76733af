package e2e

import (
	"strings"
	"testing"
)

// TestPulledKeeps proves that a link that is down takes the carrier of both its ends, hosts' and
// Linux routers' as well as at switches, and that when it is up again both have what they had, in
// either direction: routes and addresses that the topology gives or that somebody has set by hand,
// without what somebody has removed, also when another daemon has taken over meanwhile; and that a
// route which the topology gets meanwhile is there.
func TestPulledKeeps(t *testing.T) {
	for name, file := range map[string]string{
		"hosts":    "nodes: {a: host, b: host, c: host}\nlinks: [a -- b, b -- c]\n",
		"routers":  "datapath: kernel\nnodes: {a: router, b: router, c: router}\nlinks: [a -- b, b -- c]\n",
		"bridge":   "datapath: bridge\nnodes: {a: host, s1: switch, b: host, c: host}\nlinks: [a -- s1, s1 -- b, b -- c]\n",
		"embedded": "datapath: embedded\nnodes: {a: host, s1: switch, b: host, c: host}\nlinks: [a -- s1, s1 -- b, b -- c]\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.up(m.file("lab.yaml", file))
			ends := map[string]string{} // of the link that is cut: devices by node
			for line := range strings.Lines(m.ok("exec", "a", "--", "ip", "-o", "link")) {
				if f := strings.Fields(line); strings.HasPrefix(f[1], "a-") {
					ends["a"], _, _ = strings.Cut(strings.TrimSuffix(f[1], ":"), "@")
				}
			}
			ends["b"] = strings.NewReplacer("a-", "b-").Replace(ends["a"])
			link := "a-b"
			if strings.Contains(file, "s1") {
				link = "s1-b"
			}
			for node, dev := range ends {
				host := map[string]string{"a": "1", "b": "2"}[node]
				m.exec(node, strings.NewReplacer("DEV", dev, "N", host).Replace("ip addr add 192.0.2.N/24 dev DEV; ip addr add 2001:db8:5::N/64 dev DEV nodad; "+
					"ip route add 198.51.100.0/24 via 192.0.2.9 dev DEV metric 7; ip route add 203.0.113.0/24 dev DEV table 99; "+
					"ip -6 route add 2001:db8:6::/64 via 2001:db8:5::9 dev DEV; ip neigh replace 192.0.2.9 lladdr 02:00:00:00:00:09 dev DEV nud permanent"))
			}
			m.exec("b", "ip addr add 198.18.0.1/24 dev "+ends["b"]+" label "+ends["b"]+":x")
			look := func(node string) string {
				return m.exec(node, "ip -o addr show scope global | sed 's/valid_lft.*//'; ip route show table all | sort; ip -6 route show table all | grep -v multicast | sort; "+
					"ip neigh show nud permanent | grep -v multicast")
			}
			want := map[string]string{}
			for node := range ends {
				eventually(t, "no address of "+node+" is tentative", func() bool { return m.exec(node, "ip -6 addr show tentative") == "" })
				want[node] = look(node)
			}
			check := func(after string) {
				t.Helper()
				for node := range ends {
					if got := look(node); got != want[node] {
						t.Errorf("after %s %s has\n%s\nbefore\n%s", after, node, got, want[node])
					}
				}
			}
			m.ok("link", "set", link, "down")
			if up := m.exec("b", "ip -o link show "+ends["b"]+" up | grep -c LOWER_UP || true"); strings.TrimSpace(up) != "0" {
				t.Error("b has a carrier")
			}
			if link == "a-b" && strings.TrimSpace(m.exec("a", "ip -o link show "+ends["a"]+" | grep -c LOWER_UP || true")) != "0" {
				t.Error("a has a carrier")
			}
			m.ok("link", "set", link, "up")
			check("down and up")
			m.ok("link", "set", link, "down")
			m.exec("b", "ip addr del 198.18.0.1/24 dev "+ends["b"])
			m.killDaemon()
			m.ok("resume")
			m.ok("link", "set", link, "up")
			var rest []string
			for line := range strings.Lines(want["b"]) {
				if !strings.Contains(line, "198.18.0") {
					rest = append(rest, line)
				}
			}
			want["b"] = strings.Join(rest, "")
			check("a resume")
			if name != "hosts" {
				return
			}
			m.ok("link", "set", link, "down")
			more := strings.NewReplacer("b: host", "b: {host: {routes: [100.64.0.0/16 via 10.0.0.1]}}", "a -- b,", "{a -- b: {down: true}},")
			m.ok("apply", m.file("more.yaml", more.Replace(file)))
			m.ok("link", "set", link, "up")
			contains(t, m.exec("b", "ip route"), "100.64.0.0/16 via 10.0.0.1", "198.51.100.0/24 via 192.0.2.9")
			m.ok("link", "set", link, "down")
			m.ok("apply", m.file("less.yaml", strings.Replace(more.Replace(file), "100.64.0.0", "100.65.0.0", 1)))
			m.ok("link", "set", link, "up")
			if got := m.exec("b", "ip route"); strings.Contains(got, "100.64.0.0") || !strings.Contains(got, "100.65.0.0/16 via 10.0.0.1") {
				t.Errorf("the topology has another route by now, and b has\n%s", got)
			}
		})
	}
}
