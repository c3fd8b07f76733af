package interop

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"trivet.dev/trivet/routing/ospf"
)

// protocolBIRD is the number of BIRD's routes in the kernel (RTPROT_BIRD).
const protocolBIRD = 12

const frrBackbone = `
interface line
 ip ospf network point-to-point
 ip ospf hello-interval 1
 ip ospf dead-interval 4
 ip ospf retransmit-interval 3
 ip ospf cost 7
interface lo
 ip ospf cost 3
router ospf
 ospf router-id 2.2.2.2
 timers throttle spf 0 50 500
 redistribute connected metric 33 metric-type 2
 network 10.1.0.0/16 area 0
 network 192.0.2.0/24 area 0
`

const birdArea1 = `
router id 3.3.3.3;
protocol device {}
protocol static { ipv4; route 203.0.113.0/24 blackhole; }
protocol kernel { ipv4 { export where source != RTS_STATIC; }; }
protocol ospf v2 {
	ipv4 {
		import all;
		export filter { if source = RTS_STATIC then { ospf_metric1 = 12; accept; } reject; };
	};
	area 1 {
		interface "lan" {
			type broadcast; cost 4; hello 1; dead 4; wait 4; retransmit 3;
			authentication cryptographic;
			password "walnut" { id 3; algorithm hmac sha256; };
		};
		interface "lo" { stub; cost 2; };
	};
}
`

// startBIRD runs BIRD with a configuration.
func (s *site) startBIRD(config string) {
	s.t.Helper()
	path := s.file("bird.conf", config)
	s.start("/usr/sbin/bird", "-f", "-c", path, "-s", filepath.Join(s.dir, "bird.ctl"), "-P", filepath.Join(s.dir, "bird.pid"))
}

// FRR in the backbone and BIRD in area 1 (a broadcast network with HMAC-SHA-256) have each other's
// networks, external ones too, by way of two routers of one domain: a, which FRR sees, and the
// border router b, which BIRD sees. Between a and b no packet flows.
func TestDomainBetweenFRRAndBIRD(t *testing.T) {
	needs(t, "/usr/lib/frr/ospfd", "/usr/lib/frr/zebra", "vtysh", "/usr/sbin/bird")
	ours, one, two := newSite(t), newSite(t), newSite(t)
	join(ours, one, "line", "10.1.1.1/30", "10.1.1.2/30")
	join(ours, two, "lan", "10.2.1.1/24", "10.2.1.2/24")
	one.within(func() error { return up("lo", "192.0.2.2/32", "198.51.100.1/24") })
	two.within(func() error { return up("lo", "172.20.0.1/32") })
	one.startFRR(frrBackbone)
	two.startBIRD(birdArea1)

	e := newEngine(t, ours, ospf.Config{})
	a, b := e.router("1.1.1.1"), e.router("1.1.1.2")
	sha := ospf.Auth{Type: ospf.AuthCryptographic, Keys: []ospf.Key{{ID: 3, Algorithm: ospf.HMACSHA256, Secret: []byte("walnut")}}}
	line := e.attach(a, "line", fast(ospf.InterfaceConfig{Address: netip.MustParsePrefix("10.1.1.1/30"), Cost: 7}))
	lan := e.attach(b, "lan", fast(ospf.InterfaceConfig{Area: 1, Type: ospf.Broadcast, Address: netip.MustParsePrefix("10.2.1.1/24"), Cost: 4, Auth: sha}))
	inside := e.segment(a, b, "10.3.0.0/30", 5)
	e.run()
	e.do(func(now time.Time) {
		for _, i := range inside {
			i.Up(now)
		}
	})

	wait(t, 40*time.Second, func() string { return e.notFull(1, line, lan) })
	wait(t, 20*time.Second, func() string {
		return e.lacks(a, map[string]string{
			"192.0.2.2/32":    "192.0.2.2/32 intra-area cost 10 via 10.1.1.2",
			"172.20.0.1/32":   "172.20.0.1/32 inter-area cost 9 via 10.3.0.2",
			"203.0.113.0/24":  "203.0.113.0/24 type 1 external cost 21 via 10.3.0.2",
			"198.51.100.0/24": "198.51.100.0/24 type 2 external cost 7/33 via 10.1.1.2",
		})
	})
	wait(t, 20*time.Second, func() string {
		return one.lacks(protocolOSPF, map[string]string{"172.20.0.1/32": "[10.1.1.1]", "203.0.113.0/24": "[10.1.1.1]", "10.3.0.0/30": "[10.1.1.1]"})
	})
	wait(t, 20*time.Second, func() string {
		return two.lacks(protocolBIRD, map[string]string{"192.0.2.2/32": "[10.2.1.1]", "198.51.100.0/24": "[10.2.1.1]", "10.3.0.0/30": "[10.2.1.1]"})
	})
}

const frrFarArea = `
interface line
 ip ospf network point-to-point
 ip ospf hello-interval 1
 ip ospf dead-interval 4
 ip ospf retransmit-interval 3
 ip ospf cost 7
router ospf
 ospf router-id 2.2.2.2
 timers throttle spf 0 50 500
 area 1 virtual-link 1.1.1.1 hello-interval 1
 area 1 virtual-link 1.1.1.1 dead-interval 4
 network 10.1.0.0/16 area 1
 network 192.0.2.0/24 area 2
`

// By a virtual link through area 1 FRR's area 2 is joined to the engine's backbone: each has the
// other's networks.
func TestVirtualLinkWithFRR(t *testing.T) {
	needs(t, "/usr/lib/frr/ospfd", "/usr/lib/frr/zebra", "vtysh")
	ours, theirs := newSite(t), newSite(t)
	join(ours, theirs, "line", "10.1.1.1/30", "10.1.1.2/30")
	theirs.within(func() error { return up("lo", "192.0.2.2/32") })
	theirs.startFRR(frrFarArea)

	e := newEngine(t, ours, ospf.Config{})
	a, b := e.router("1.1.1.1"), e.router("1.1.1.2")
	line := e.attach(a, "line", fast(ospf.InterfaceConfig{Area: 1, Address: netip.MustParsePrefix("10.1.1.1/30"), Cost: 7}))
	inside := e.segment(a, b, "10.3.0.0/30", 5)
	virtual, err := a.AddVirtualLink(time.Now(), ospf.VirtualLinkConfig{Transit: 1, Peer: 0x02020202, HelloInterval: time.Second, DeadInterval: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	e.run()
	e.do(func(now time.Time) {
		for _, i := range inside {
			i.Up(now)
		}
	})
	wait(t, 40*time.Second, func() string { return e.notFull(1, line, virtual) })
	wait(t, 20*time.Second, func() string {
		return e.lacks(b, map[string]string{"192.0.2.2/32": "192.0.2.2/32 inter-area cost 12 via 10.3.0.1"})
	})
	wait(t, 20*time.Second, func() string { return theirs.lacks(protocolOSPF, map[string]string{"10.3.0.0/30": "[10.1.1.1]"}) })
}

// segment joins two routers of the domain in the backbone, without packets. The interfaces are
// down.
func (e *engine) segment(a, b *ospf.Router, network string, cost uint16) (ends [2]*ospf.Interface) {
	e.t.Helper()
	p := netip.MustParsePrefix(network)
	addr := p.Addr()
	for n, r := range []*ospf.Router{a, b} {
		addr = addr.Next()
		i, err := r.AddInterface(ospf.InterfaceConfig{Address: netip.PrefixFrom(addr, p.Bits()), Cost: cost})
		if err != nil {
			e.t.Fatal(err)
		}
		ends[n] = i
	}
	if _, err := e.domain.Connect(ends[:]...); err != nil {
		e.t.Fatal(err)
	}
	return ends
}
