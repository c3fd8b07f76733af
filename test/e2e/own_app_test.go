package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// programWith is trivet with one of the apps under examples compiled in.
func (m *machine) programWith(app string) string {
	m.t.Helper()
	own := filepath.Join(m.dir, "own")
	file, err := filepath.Abs("../../cmd/trivet/apps.go")
	must(m.t, err)
	line := m.file("apps.go", "package main\n\nimport _ \"trivet.dev/trivet/examples/"+app+"\"\n")
	build := exec.Command("../../scripts/go", "build", "-trimpath", "-buildvcs=false", "-overlay", m.file("overlay.json", fmt.Sprintf(`{"Replace": {%q: %q}}`, file, line)),
		"-o", own, "../../cmd/trivet")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		m.t.Fatalf("%v: %s", err, out)
	}
	return own
}

// oks returns what runs a program that must succeed, and gives its output.
func (m *machine) oks(program string) func(args ...string) string {
	return func(args ...string) string {
		m.t.Helper()
		r := m.do(m.command(program, args...))
		if r.code != 0 {
			m.t.Fatal(r)
		}
		return r.out
	}
}

// TestOwnApp proves that an app that one line has compiled into the program is listed, runs in a
// lab as the built-in ones do, with its entries called by its name, and answers by the API of the
// lab.
func TestOwnApp(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	own := m.programWith("mute")
	ok := m.oks(own)
	mute := func(method string) {
		t.Helper()
		mac := ok("exec", "-n", "h1", "--", "cat", "/sys/class/net/h1-eth0/address")
		m.sh("curl -sf -X " + method + " --unix-socket /run/trivet/" + m.name + "/daemon.sock http://lab/v1/controller/apps/mute/" + mac)
	}
	reaches := func() bool {
		return m.do(m.command(own, "exec", "-n", "h1", "--", "ping", "-c1", "-W1", "10.0.0.2")).code == 0
	}
	contains(t, ok("controller", "--help"), "routing, learning, balance, mute (")
	before := m.snapshot()
	ok("up", "--name", m.name, "--wait", "3m", "minimal")
	eventually(t, "h1 reaches h2", reaches)
	mute("PUT")
	eventually(t, "h1 is silent", func() bool { return !reaches() })
	contains(t, ok("flows", "s1"), "mute", "drop")
	mute("DELETE")
	eventually(t, "h1 speaks again", reaches)
	ok("down")
	m.unchanged(before)
}

// TestSockets proves that an app's sockets are those of routers, on every datapath that they have:
// a host reaches an echo server on a router by all of its addresses, in packets as large as links
// take, and routers reach each other's and one on a host, by IPv4, IPv6 and link-local addresses;
// that a connection goes on over a change of the topology, and that a router which is gone takes
// its sockets along.
func TestSockets(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			own := m.programWith("echo")
			ok := m.oks(own)
			before := m.snapshot()
			lab := func(more string) string {
				return m.file("lab.yaml", "ipv6: auto\ndefaults: {router: {datapath: "+datapath+"}}\nnodes:\n  h[1-2]: host\n  r1: router\n  r2: {router: {loopback: 10.9.9.2/32}}\n"+more+
					"links:\n  - h1 -- r1\n  - r1 -- r2: {mtu: 1400}\n  - r2 -- h2\n")
			}
			ok("up", "--name", m.name, "--wait", "3m", lab(""))
			address := func(node, device, family string) string {
				t.Helper()
				var info struct {
					Topology struct {
						Links []struct {
							Ends []struct {
								Node, Interface string
								Addresses       []string
							}
						}
					}
				}
				must(t, json.Unmarshal([]byte(ok("inspect", "--json")), &info))
				for _, l := range info.Topology.Links {
					for _, e := range l.Ends {
						for _, a := range e.Addresses {
							if e.Interface == device && strings.Contains(a, ":") == (family == "6") {
								return strings.Split(a, "/")[0]
							}
						}
					}
				}
				t.Fatalf("%s has no address at %s", node, device)
				return ""
			}
			echoed := func(to string) string {
				return ok("exec", "-n", "h1", "--", "python3", "-c", `import socket, sys
c = socket.create_connection((sys.argv[1], 7), 10)
c.sendall(b"x" * 20000)
c.shutdown(socket.SHUT_WR)
print(len(c.makefile("rb").read()), "bytes")`, to)
			}
			for _, to := range []string{address("r1", "r1-eth0", "4"), address("r2", "r2-eth0", "4"), "10.9.9.2"} {
				contains(t, echoed(to), "20000 bytes")
			}
			for _, to := range []string{address("r1", "r1-eth0", "6"), address("r2", "r2-eth1", "6")} {
				contains(t, echoed(to), "20000 bytes")
			}
			asks := func(router, to string) string {
				return m.sh("curl -s --unix-socket /run/trivet/" + m.name + "/daemon.sock http://lab/v1/controller/apps/echo/" + router + "/" + to)
			}
			for _, family := range []string{"4", "6"} {
				contains(t, asks("r1", address("r2", "r2-eth1", family)), "hello from r1 at ", address("r1", "r1-eth1", family))
			}
			local := func(device string) string { // the address that follows from a device's MAC, as the host beside it has been told
				t.Helper()
				var info struct {
					Topology struct {
						Links []struct {
							Ends []struct{ Interface, MAC string }
						}
					}
				}
				must(t, json.Unmarshal([]byte(ok("inspect", "--json")), &info))
				for _, l := range info.Topology.Links {
					for _, e := range l.Ends {
						if mac, err := net.ParseMAC(e.MAC); e.Interface == device && err == nil {
							return fmt.Sprintf("fe80::%02x%02x:%02xff:fe%02x:%02x%02x", mac[0]^2, mac[1], mac[2], mac[3], mac[4], mac[5])
						}
					}
				}
				t.Fatalf("%s has no MAC", device)
				return ""
			}
			contains(t, echoed(local("r1-eth0")+"%h1-eth0"), "20000 bytes")
			contains(t, asks("r1", local("r2-eth0")+"%25r1-eth1"), "hello from r1 at ", "%r1-eth1")
			server := m.command(own, "exec", "-n", "h2", "--", "python3", "-c", `import socket
s = socket.create_server(("::", 7), family=socket.AF_INET6, dualstack_ipv6=True)
print("listens", flush=True)
while True:
    c = s.accept()[0]
    c.sendall(c.recv(1000))`)
			listens := m.startOutput(server)
			eventually(t, "the host listens", func() bool { return strings.Contains(listens.String(), "listens") })
			for _, family := range []string{"4", "6"} {
				contains(t, asks("r1", address("h2", "h2-eth0", family)), "hello from r1 at ")
			}
			contains(t, asks("r2", local("h2-eth0")+"%25r2-eth1"), "hello from r2 at ", "%r2-eth1")

			slow := m.command(own, "exec", "-n", "h1", "--", "python3", "-c", `import socket, sys, time
c = socket.create_connection((sys.argv[1], 7), 10)
for word in ["first", "second"]:
    c.sendall(word.encode())
    print(c.recv(100), flush=True)
    time.sleep(5)`, address("r2", "r2-eth0", "4"))
			said := m.startOutput(slow)
			eventually(t, "the connection echoes", func() bool { return strings.Contains(said.String(), "first") })
			ok("apply", lab("  r3: router\n"))
			wait(t, slow)
			contains(t, said.String(), "second")
			contains(t, asks("r3", "10.9.9.2"), "unreachable") // it is in no network, but has a stack
			ok("apply", lab(""))
			contains(t, asks("r3", "10.9.9.2"), "GET /ROUTER/ADDRESS")
			ok("down")
			wait(t, server) // it ends with its node, which may be after the lab has gone down
			m.unchanged(before)
		})
	}
}
