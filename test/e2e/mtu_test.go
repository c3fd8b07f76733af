package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tenRouters is a chain of ten routers between two hosts, with the narrowest link in the middle.
func tenRouters(middle string) string {
	text := "ipv6: auto\nnodes:\n  h[1-2]: host\n  r[1-10]: router\nlinks:\n  - h1 -- r1\n"
	for i := 1; i < 10; i++ {
		text += fmt.Sprintf("  - r%d -- r%d", i, i+1)
		if i == 5 {
			text += middle
		}
		text += "\n"
	}
	return text + "  - r10 -- h2\n"
}

// learned is what a host is told of the way to another when it sends a full packet that must not be
// cut, by both versions of IP, and having forgotten what it knew. It pings once: of several, the
// last answer would have to come as soon as those before.
func (m *machine) learned(from, to string) (mtus [2]string) {
	m.t.Helper()
	m.exec(from, "ip -4 route flush cache; ip -6 route flush cache")
	for i, headers := range []int{28, 48} {
		said := m.run("exec", "-n", from, "--", "ping", []string{"-4", "-6"}[i], "-c", "1", "-W", "30", "-M", "do", "-s", fmt.Sprint(1500-headers), to).String()
		if found := regexp.MustCompile(`mtu[ =:]+([0-9]+)`).FindStringSubmatch(said); found != nil {
			mtus[i] = found[1]
		} else if strings.Contains(said, "1 received") {
			mtus[i] = "1500"
		} else {
			m.t.Errorf("%s sends to %s and hears nothing: %s", from, to, said)
		}
	}
	return mtus
}

// TestMTU proves, of routers of each kind, that what the narrowest of eleven links takes is found
// out from both ends, by IPv4 and IPv6, whether the MTU is set in the file, by link set, by apply
// or is that of a lab that was resumed; that packets of this size arrive, that TCP sends such ones,
// and that larger ones of IPv4 that may be cut arrive in fragments.
func TestMTU(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"embedded", "ovs", "kernel", "frr", "embedded reactive"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			datapath, reactive, _ := strings.Cut(kind, " ")
			lab := func(middle string) string {
				text := tenRouters(middle)
				if reactive != "" {
					text = "routing: reactive\n" + text
				}
				return "defaults: {router: {datapath: " + datapath + "}}\n" + text
			}
			m.up(m.file("ten.yaml", lab(": {mtu: 1400}")))
			m.pingAll(2)
			m.exec("h1", "ping -6 -c 1 -w 10 h2") // neighbours on the way are asked for
			check := func(how, mtu string) {
				t.Helper()
				for _, ends := range [][2]string{{"h1", "h2"}, {"h2", "h1"}} {
					if got := m.learned(ends[0], ends[1]); got != [2]string{mtu, mtu} {
						t.Errorf("%s: %s learns %v on the way to %s, want %s", how, ends[0], got, ends[1], mtu)
					}
					m.exec(ends[0], "ip -4 route flush cache")
					ping := func(of, size, cut string) {
						t.Helper()
						contains(t, m.exec(ends[0], fmt.Sprintf("ping %s -c 1 -W 30 -M %s -s %s %s", of, cut, size, ends[1])), "1 received")
					}
					ping("-4", "1472", "dont") // in fragments
					ping("-4", fmt.Sprintf("$((%s - 28))", mtu), "do")
					ping("-6", fmt.Sprintf("$((%s - 48))", mtu), "do")
				}
			}
			check("in the file", "1400")
			if datapath == "embedded" || datapath == "ovs" {
				contains(t, m.ok("path", "h1", "h2"), "packets of at most 1414 bytes")
			}
			for _, ends := range [][2]string{{"h1", "h2"}, {"h2", "h1"}} {
				for _, of := range []string{"-4", "-6"} {
					listens := func() bool { return strings.Contains(m.exec(ends[1], "ss -Hltn"), ":5300") }
					eventually(t, "the server of before has ended", func() bool { return !listens() })
					m.exec(ends[1], "iperf3 -s -1 -D -p 5300")
					eventually(t, ends[1]+" listens", listens)
					said := m.exec(ends[0], "iperf3 "+of+" -c "+ends[1]+" -p 5300 -n 4M -J | grep -A40 end | grep -m1 bytes")
					contains(t, said, "bytes")
				}
			}
			m.ok("link", "set", "r5-r6", "mtu=1300")
			check("link set", "1300")
			m.ok("apply", m.file("ten.yaml", lab(": {mtu: 1350}")))
			check("apply", "1350")
			m.killDaemon()
			m.ok("resume", m.name)
			check("after resume", "1350")
			m.ok("link", "set", "r5-r6", "mtu=none")
			check("without one", "1500")
			m.ok("down")
			m.unchanged(before)
		})
	}
}

// TestMTUOfSwitches proves, of switches of each kind, that a link takes packets of its MTU and
// drops larger ones, in both directions, whether it is narrow or for jumbo frames; that beside such
// a one other links take 1,500 bytes as ever; that impaired links do so, too; and that trivet
// verify finds the MTUs that were asked for, and one that somebody has changed.
func TestMTUOfSwitches(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs", "bridge"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			lab := func(first, middle, last string) string {
				return "defaults: {switch: {datapath: " + datapath + "}}\nnodes:\n  h[1-2]: host\n  s[1-2]: switch\nlinks:\n" +
					"  - h1 -- s1" + first + "\n  - s1 -- s2" + middle + "\n  - s2 -- h2" + last + "\n"
			}
			over := 1
			if datapath == "bridge" {
				over = 5 // Linux leaves room for a tag, whether or not there is one
			}
			passes := func(mtu int) {
				t.Helper()
				for _, ends := range [][2]string{{"h1", "h2"}, {"h2", "h1"}} {
					for size, want := range map[int]bool{mtu: true, mtu + over: false} {
						patience := map[bool]string{true: "30", false: "1"}[want]
						said := m.run("exec", "-n", ends[0], "--", "ping", "-c", "1", "-W", patience, "-M", "do", "-s", fmt.Sprint(size-28), ends[1]).String()
						if strings.Contains(said, "1 received") != want {
							t.Errorf("%s to %s, %d bytes, MTU of %d: %s", ends[0], ends[1], size, mtu, said)
						}
					}
				}
			}
			m.up(m.file("line.yaml", lab("", ": {mtu: 1400}", "")))
			m.pingAll(2)
			passes(1400)
			verifies := func(code int, words ...string) {
				t.Helper()
				eventually(t, "verify says what is", func() bool { // a busy machine may keep it from that
					r := m.run("verify", "--quick")
					t.Log(r)
					return (r.code == code || code == 0 && r.code == 6) && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(r.String(), w) })
				})
			}
			verifies(0, "1400")
			contains(t, m.ok("inspect"), "MTU of s1-eth2 1400, s2-eth1 1400")
			m.ok("link", "set", "s1-s2", "mtu=1000", "delay=2ms")
			passes(1000)
			m.ok("apply", m.file("line.yaml", lab(": {mtu: 9000}", ": {mtu: 9000}", ": {mtu: 9000}")))
			passes(9000)
			m.ok("link", "set", "s1-s2", "mtu=none")
			passes(1500)
			m.killDaemon()
			m.ok("resume", m.name)
			passes(1500)
			m.ok("apply", m.file("line.yaml", lab("", "", "")))
			passes(1500)
			m.exec("h2", "ip link set h2-eth0 mtu 1200")
			verifies(5, "✗ mtu", "h2-eth0 takes packets of 1200 bytes, not of 1500")
			for _, bad := range []string{"mtu=67", "mtu=9217", "mtu=small"} {
				contains(t, m.want(1, "link", "set", "s1-s2", bad).String(), "is not an MTU; write the bytes of the largest IP packet, 68 to 9216")
			}
			m.ok("down")
			m.unchanged(before)
		})
	}
}
