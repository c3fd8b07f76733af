// Package interop proves by real daemons that the engine speaks OSPF: FRR and BIRD run in a
// namespace, the engine on raw sockets in another, with veth pairs between. Only the engine's
// public API is used.
package interop

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/inside/insidetest"
	"trivet.dev/trivet/test/until"
)

// site is a namespace without a name, so that nothing is left of it when the test dies.
type site struct {
	t   *testing.T
	ns  *os.File
	dir string // of the daemons in it
}

func newSite(t *testing.T) *site {
	t.Helper()
	ns := insidetest.New(t)
	s := &site{t: t, ns: ns, dir: t.TempDir()}
	s.within(func() error { return up("lo") })
	return s
}

// within runs a function on a thread in the namespace; what it starts stays in there.
func (s *site) within(do func() error) {
	s.t.Helper()
	if err := inside.File(s.ns, do); err != nil {
		s.t.Fatal(err)
	}
}

func up(name string, addrs ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		if err == nil {
			err = netlink.AddrAdd(link, addr)
		}
		if err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(link)
}

// join makes a veth pair of one name at both sites, with an address each.
func join(a, b *site, name, addrA, addrB string) {
	a.t.Helper()
	a.within(func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name, PeerNamespace: netlink.NsFd(b.ns.Fd())}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		return up(name, addrA)
	})
	b.within(func() error { return up(name, addrB) })
}

// start runs a daemon at the site until the test ends. Its output goes into a file, shown on
// failure.
func (s *site) start(name string, args ...string) {
	s.t.Helper()
	log, err := os.Create(filepath.Join(s.dir, filepath.Base(name)+".log"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { // after the daemon has ended
		log.Close()
		if text, _ := os.ReadFile(log.Name()); s.t.Failed() && len(text) > 0 {
			s.t.Logf("%s said:\n%s", name, text)
		}
	})
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	s.launch(cmd)
}

// launch starts a program at the site, and ends it when the test does.
func (s *site) launch(cmd *exec.Cmd) {
	s.t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // of the thread that starts it: that stays until the daemon has ended
	started := make(chan error, 2)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		started <- inside.File(s.ns, func() error {
			if err := cmd.Start(); err != nil {
				return err
			}
			started <- nil
			_ = cmd.Wait()
			return nil
		})
	}()
	if err := <-started; err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	})
}

// output runs a command at the site.
func (s *site) output(name string, args ...string) (string, error) {
	var out []byte
	err := inside.File(s.ns, func() (err error) {
		out, err = exec.Command(name, args...).CombinedOutput()
		return err
	})
	return string(out), err
}

// file writes a file of the site's daemons and returns its path.
func (s *site) file(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// kernelRoutes lists the routes that a daemon has put into the site's kernel: next hops by network.
func (s *site) kernelRoutes(protocol netlink.RouteProtocol) map[netip.Prefix][]netip.Addr {
	routes := map[netip.Prefix][]netip.Addr{}
	s.within(func() error {
		list, err := netlink.RouteListFiltered(unix.AF_INET, &netlink.Route{Protocol: protocol}, netlink.RT_FILTER_PROTOCOL)
		for _, r := range list {
			dst := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			if r.Dst != nil {
				ones, _ := r.Dst.Mask.Size()
				dst = netip.PrefixFrom(toAddr(r.Dst.IP), ones)
			}
			if r.Gw != nil {
				routes[dst] = append(routes[dst], toAddr(r.Gw))
			}
			for _, h := range r.MultiPath {
				routes[dst] = append(routes[dst], toAddr(h.Gw))
			}
		}
		return err
	})
	return routes
}

func toAddr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// wait waits until the function has nothing more to complain about, four times as long as a quiet
// machine would need at most.
func wait(t *testing.T, limit time.Duration, complaint func() string) {
	t.Helper()
	until.Silent(t, 4*limit, complaint)
}

// frr is FRR's zebra and ospfd at a site.
type frr struct {
	*site
	vty string
}

// startFRR runs zebra, and ospfd with a configuration.
func (s *site) startFRR(config string) *frr {
	s.t.Helper()
	return s.startFRRBy(config, s.start)
}

// startFRRBy does the same; start runs ospfd.
func (s *site) startFRRBy(config string, start func(name string, args ...string)) *frr {
	s.t.Helper()
	f := &frr{s, filepath.Join(s.dir, "vty")}
	if err := os.Mkdir(f.vty, 0o755); err != nil {
		s.t.Fatal(err)
	}
	for _, dir := range []string{filepath.Dir(s.dir), s.dir, f.vty} { // the daemons run as the user frr
		if err := os.Chmod(dir, 0o777); err != nil {
			s.t.Fatal(err)
		}
	}
	zapi := filepath.Join(s.dir, "zserv.api")
	for _, name := range []string{"zebra", "ospfd"} {
		run := s.start
		if name == "zebra" {
			s.file("zebra.conf", "\n")
		} else {
			s.file("ospfd.conf", config)
			run = start
		}
		path := filepath.Join(s.dir, name+".conf")
		run("/usr/lib/frr/"+name, "-f", path, "-i", filepath.Join(s.dir, name+".pid"), "-z", zapi,
			"--vty_socket", f.vty, "-A", "127.0.0.1", "-P", "0", "--log", "stdout")
		wait(s.t, 10*time.Second, func() string {
			if _, err := os.Stat(filepath.Join(f.vty, name+".vty")); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	return f
}

// show runs one of vtysh's show commands that answer in JSON.
func (f *frr) show(command string, into any) {
	f.t.Helper()
	out, err := f.output("vtysh", "--vty_socket", f.vty, "-c", "show "+command+" json")
	if err == nil {
		// vtysh may complain of its own configuration file first.
		err = json.Unmarshal([]byte(out[max(0, strings.IndexByte(out, '{')):]), into)
	}
	if err != nil {
		f.t.Fatalf("vtysh show %s: %v\n%s", command, err, out)
	}
}

func needs(t *testing.T, programs ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for namespaces and raw sockets")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("needs %s (Debian packages frr and bird2)", p)
		}
	}
}

func nlProtocol(p int) netlink.RouteProtocol { return netlink.RouteProtocol(p) }

// sprintSorted writes each next hop once: FRR counts one that it has by a virtual link and by the
// transit area's summary twice.
func sprintSorted(addrs []netip.Addr) string {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return fmt.Sprint(slices.Compact(addrs))
}
