package local

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/inside/insidetest"
)

// shell runs a script in a network namespace, which must succeed.
func shell(t *testing.T, ns *os.File, script string) string {
	t.Helper()
	var out []byte
	err := inside.File(ns, func() (err error) {
		out, err = exec.Command("sh", "-ec", "PATH=$PATH:/usr/sbin:/sbin; "+script).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

// connect joins two namespaces by a veth pair.
func connect(t *testing.T, a, b *os.File, nameA, nameB string) {
	t.Helper()
	err := inside.File(a, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: nameA}, PeerName: nameB, PeerNamespace: netlink.NsFd(b.Fd())})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRefuseForwarding proves that a gateway carries nothing that a refused device sends to the
// world behind it, also by another address of its own, while another device gets out, the world
// reaches the device, and the device the gateway; and that nothing is left of that afterwards.
func TestRefuseForwarding(t *testing.T) {
	gateway, device, other, world := insidetest.New(t), insidetest.New(t), insidetest.New(t), insidetest.New(t)
	connect(t, gateway, device, "in1", "eth0")
	connect(t, gateway, other, "in2", "eth0")
	connect(t, gateway, world, "out", "eth0")
	shell(t, gateway, `sysctl -qw net.ipv4.ip_forward=1; ip addr add 10.9.1.1/24 dev in1; ip addr add 10.9.2.1/24 dev in2; ip addr add 10.9.3.1/24 dev out
		ip link set in1 up; ip link set in2 up; ip link set out up`)
	for i, ns := range []*os.File{device, other, world} {
		n := string("123"[i])
		shell(t, ns, "ip link set lo up; ip addr add 10.9."+n+".2/24 dev eth0; ip addr add 10.9."+n+".3/24 dev eth0; ip link set eth0 up; ip route add default via 10.9."+n+".1")
	}
	pings := func(from *os.File, args string) bool {
		t.Helper()
		return strings.Contains(shell(t, from, "ping -c 1 -W 1 "+args+" || :"), " 1 received")
	}
	reaches := func(from *os.File, args string) bool { // in a while: a carrier is noticed some time after it has come
		t.Helper()
		for end := time.Now().Add(time.Minute); ; {
			if pings(from, args) {
				return true
			}
			if time.Now().After(end) {
				return false
			}
		}
	}
	before := shell(t, gateway, "nft list ruleset")
	check := func(when string, out bool) {
		t.Helper()
		for what, c := range map[string]struct {
			from *os.File
			args string
			want bool
		}{
			"the device to the world":                         {device, "10.9.3.2", out},
			"the device to the world, from its other address": {device, "-I 10.9.1.3 10.9.3.2", out},
			"the device to the gateway":                       {device, "10.9.1.1", true},
			"another device to the world":                     {other, "10.9.3.2", true},
			"the world to the device":                         {world, "10.9.1.2", true},
		} {
			gets := pings
			if c.want {
				gets = reaches
			}
			if gets(c.from, c.args) != c.want {
				t.Errorf("%s: %s: %t", when, what, !c.want)
			}
		}
	}
	check("before", true)
	in := func(f func() error) {
		t.Helper()
		if err := inside.File(gateway, f); err != nil {
			t.Fatal(err)
		}
	}
	refuse := func() error { return RefuseForwarding("test", []netip.Addr{netip.MustParseAddr("10.9.1.2")}) }
	in(refuse)
	check("refused", false)
	in(refuse)
	check("refused twice", false)
	in(func() error { return ForwardAgain("test") })
	check("afterwards", true)
	if after := shell(t, gateway, "nft list ruleset"); after != before {
		t.Errorf("the firewall has\n%s\nand had\n%s", after, before)
	}
}

// TestBond proves that interfaces are one while a lab needs that, and are again what they were
// afterwards; that two labs share the bond; and that interfaces are left alone that would lose an
// address, a VLAN or their place in a bridge, or of which the machine has a bond already, which is
// then found.
func TestBond(t *testing.T) {
	ns, far := insidetest.New(t), insidetest.New(t)
	for _, name := range []string{"e1", "e2", "e3"} {
		connect(t, ns, far, name, name)
		shell(t, far, "ip link set "+name+" up")
		shell(t, ns, "ip link set "+name+" up")
	}
	const name = "test-bond"
	in := func(f func() error) error { return inside.File(ns, f) }
	if err := in(func() error { return netlink.LinkAdd(netlink.NewLinkBond(netlink.LinkAttrs{Name: "try"})) }); errors.Is(err, unix.EOPNOTSUPP) {
		if os.Getenv("TRIVET_FULL_KERNEL") != "" {
			t.Fatal("no bonding")
		}
		t.Skip("this kernel has no bonding")
	}
	shell(t, ns, "ip link del try")
	// But for what the kernel finds out in its own time: queueing discipline, state, carrier.
	const look = `ip -d link | grep -v 'link-netns\|qdisc'; ip -o link | sed 's/NO-CARRIER,//; s/ qdisc .* link\/ether/ link\/ether/; s/ link-netns.*//'`
	before := shell(t, ns, look)
	members := []string{"e1", "e2"}
	refused := func(want string) {
		t.Helper()
		if err := in(func() error { return MakeBond("test-a", name, members) }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
	must := func(f func() error) {
		t.Helper()
		if err := in(f); err != nil {
			t.Fatal(err)
		}
	}

	shell(t, ns, "ip addr add 10.42.0.1/24 dev e2")
	refused("e1 and e2 cannot be bonded while a lab is up, as e2 has the address 10.42.0.1/24")
	shell(t, ns, "ip addr flush dev e2; ip link add br0 type bridge; ip link set e1 master br0")
	refused("e1 belongs to br0")
	shell(t, ns, "ip link del br0; ip link add link e1 name e1.5 type vlan id 5")
	refused("e1 carries e1.5")
	shell(t, ns, "ip link del e1.5")

	must(func() error { return MakeBond("test-a", name, members) })
	must(func() error { return MakeBond("test-b", name, members) })
	if out := shell(t, ns, "ip -d link show "+name+"; ip link show master "+name); !strings.Contains(out, "mode 802.3ad") || !strings.Contains(out, " e1@") || !strings.Contains(out, " e2@") {
		t.Errorf("the bond: %s", out)
	}
	if err := in(func() error { return MakeBond("test-c", name, []string{"e1", "e3"}) }); err == nil || !strings.Contains(err.Error(), "lab test-a has bonded other interfaces") {
		t.Errorf("other interfaces: %v", err)
	}
	must(func() error { return DropBond("test-a", name) })
	shell(t, ns, "ip link show "+name)
	must(func() error { return DropBond("test-b", name) })
	if after := shell(t, ns, look); after != before {
		t.Errorf("they are\n%s\nand were\n%s", after, before)
	}

	shell(t, ns, "ip link add own type bond mode active-backup; ip link set e1 down; ip link set e2 down; ip link set e1 master own; ip link set e2 master own")
	must(func() error {
		is, err := Bonded(members, name)
		if is != "own" {
			t.Errorf("the machine's own bond: %s", is)
		}
		return err
	})
}
