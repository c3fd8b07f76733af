package e2e

import (
	"regexp"
	"strings"
	"testing"
)

// TestPortSpeed proves that ports of switches have the speed of what leaves them: of the embedded
// switch for any link, also where the two directions differ, of Open vSwitch where a link has a
// delay line; from the file, after link set, which is told by PORT_STATUS, after apply and resume;
// and that ethtool says the same at a delay line's devices.
func TestPortSpeed(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			text := "controller: none\ndatapath: " + datapath + `
nodes: {h1: host, h2: host, s1: switch}
links:
- h1 -- s1: {bandwidth: 10mbit, to: {bandwidth: 1gbit}}
- h2 -- s1: {bandwidth: 10mbit, delay: 5ms}
`
			file := m.file("speed.yaml", text)
			m.up(file)
			line := m.traffic().Links[1].Directions[0].Queue.Kind == "line"
			is := func(port, speed, when string) {
				t.Helper()
				if datapath == "ovs" && (port == "s1-eth1" || !line) {
					return // a veth device of the kernel claims 10 Gbit/s, whatever it is told
				}
				eventually(t, port+" has "+speed+" "+when, func() bool {
					out := m.exec("s1", "ovs-ofctl -O OpenFlow13 dump-ports-desc s1")
					found := regexp.MustCompile(port + `\)[^(]*speed: (\S+ Mbps) now`).FindStringSubmatch(out)
					return found != nil && found[1] == speed
				})
				if host := "h" + port[len(port)-1:]; line && host == "h2" {
					want := strings.Fields(speed)[0] + "Mb/s"
					contains(t, m.exec(host, "ethtool "+host+"-eth0"), "Speed: "+want)
				}
			}
			is("s1-eth1", "1000 Mbps", "from the file, towards the host")
			is("s1-eth2", "10 Mbps", "from the file")
			if datapath == "embedded" || line {
				monitor := m.startOutput(m.command(trivet, "exec", "s1", "--", "ovs-ofctl", "-O", "OpenFlow13", "monitor", "s1", "65534")) // without a length it is told nothing
				eventually(t, "a change of the speed is told", func() bool {
					m.ok("link", "set", "h2-s1", "bandwidth=1gbit")
					m.ok("link", "set", "h2-s1", "bandwidth=10mbit")
					return strings.Contains(monitor.String(), "OFPT_PORT_STATUS") && strings.Contains(monitor.String(), "1000 Mbps now")
				})
			}
			m.ok("link", "set", "h1-s1", "bandwidth=100mbit")
			m.ok("link", "set", "h2-s1", "bandwidth=100mbit")
			is("s1-eth1", "100 Mbps", "after link set")
			is("s1-eth2", "100 Mbps", "after link set")
			m.killDaemon()
			m.ok("resume")
			is("s1-eth1", "100 Mbps", "after resume")
			is("s1-eth2", "100 Mbps", "after resume")
			m.file("speed.yaml", strings.ReplaceAll(text, "10mbit", "10gbit"))
			m.ok("apply", file)
			is("s1-eth1", "1000 Mbps", "after apply")
			is("s1-eth2", "10000 Mbps", "after apply")
			m.ok("down")
		})
	}
}
