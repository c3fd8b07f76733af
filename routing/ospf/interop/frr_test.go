package interop

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"trivet.dev/trivet/routing/ospf"
)

func sprint(v any) string { return fmt.Sprintf("%+v", v) }

// protocolOSPF is the number of FRR's routes of OSPF in the kernel (RTPROT_OSPF).
const protocolOSPF = 188

// fast are the timers of all links here: tests wait in real time.
func fast(cfg ospf.InterfaceConfig) ospf.InterfaceConfig {
	cfg.HelloInterval, cfg.DeadInterval = time.Second, 4*time.Second
	cfg.RxmtInterval = 3 * time.Second
	return cfg
}

var md5Key = ospf.Auth{Type: ospf.AuthCryptographic, Keys: []ospf.Key{{ID: 7, Algorithm: ospf.KeyedMD5, Secret: []byte("walnut")}}}

const frrConfig = `
interface lan
 ip ospf authentication message-digest
 ip ospf message-digest-key 7 md5 walnut
 ip ospf hello-interval 1
 ip ospf dead-interval 4
 ip ospf retransmit-interval 3
 ip ospf cost 7
interface line
 ip ospf network point-to-point
 ip ospf authentication message-digest
 ip ospf message-digest-key 7 md5 walnut
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

// With FRR on a broadcast network and on a point-to-point link at the same time, both with MD5, the
// engine becomes Full; databases have the same checksums; the engine has FRR's networks (ECMP over
// both links, an external one with its metric), FRR the engine's, in its kernel; and when the
// point-to-point link goes down, both change to the other.
func TestFRR(t *testing.T) {
	needs(t, "/usr/lib/frr/ospfd", "/usr/lib/frr/zebra", "vtysh")
	ours, theirs := newSite(t), newSite(t)
	join(ours, theirs, "lan", "10.1.1.1/24", "10.1.1.2/24")
	join(ours, theirs, "line", "10.1.2.1/30", "10.1.2.2/30")
	theirs.within(func() error { return up("lo", "192.0.2.2/32", "198.51.100.1/24") })
	f := theirs.startFRR(frrConfig)

	e := newEngine(t, ours, ospf.Config{})
	r := e.router("1.1.1.1")
	lan := e.attach(r, "lan", fast(ospf.InterfaceConfig{Type: ospf.Broadcast, Address: netip.MustParsePrefix("10.1.1.1/24"), Cost: 7, Auth: md5Key}))
	line := e.attach(r, "line", fast(ospf.InterfaceConfig{Type: ospf.PointToPoint, Address: netip.MustParsePrefix("10.1.2.1/30"), Cost: 7, Auth: md5Key}))
	behind, err := r.AddInterface(ospf.InterfaceConfig{Type: ospf.Broadcast, Address: netip.MustParsePrefix("172.16.1.1/24"), Cost: 5, Passive: true})
	if err != nil {
		t.Fatal(err)
	}
	behind.Up(time.Now())
	if err := r.SetExternals(time.Now(), []ospf.External{{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Metric: 11}}); err != nil {
		t.Fatal(err)
	}
	e.run()

	wait(t, 40*time.Second, func() string { return e.notFull(1, lan, line) })
	wait(t, 20*time.Second, func() string {
		return e.lacks(r, map[string]string{
			"192.0.2.2/32":    "192.0.2.2/32 intra-area cost 10 via 10.1.1.2 via 10.1.2.2",
			"198.51.100.0/24": "198.51.100.0/24 type 2 external cost 7/33 via 10.1.1.2 via 10.1.2.2",
		})
	})
	wait(t, 20*time.Second, func() string {
		return f.lacks(protocolOSPF, map[string]string{
			"172.16.1.0/24":  "[10.1.1.1 10.1.2.1]",
			"203.0.113.0/24": "[10.1.1.1 10.1.2.1]",
		})
	})
	wait(t, 10*time.Second, func() string { return f.differs(e) })

	e.do(func(now time.Time) { line.Down(now) })
	wait(t, 20*time.Second, func() string {
		return e.lacks(r, map[string]string{"192.0.2.2/32": "192.0.2.2/32 intra-area cost 10 via 10.1.1.2"})
	})
	wait(t, 20*time.Second, func() string { return f.lacks(protocolOSPF, map[string]string{"172.16.1.0/24": "[10.1.1.1]"}) })
}

// lacks names the first route that is not as wanted.
func (e *engine) lacks(r *ospf.Router, want map[string]string) string {
	have := e.routes(r)
	for p, line := range want {
		if got := have[netip.MustParsePrefix(p)]; got != line {
			return fmt.Sprintf("the engine has %q, not %q; all: %v", got, line, have)
		}
	}
	return ""
}

// lacks names the first route that the site's kernel does not have by these next hops.
func (s *site) lacks(protocol int, want map[string]string) string {
	have := s.kernelRoutes(nlProtocol(protocol))
	for p, hops := range want {
		if got := sprintSorted(have[netip.MustParsePrefix(p)]); got != hops {
			return fmt.Sprintf("the kernel has %s by %s, not %s; all: %v", p, got, hops, have)
		}
	}
	return ""
}

// differs compares FRR's area database with the engine's, by sequence number and checksum.
func (f *frr) differs(e *engine) string {
	type lsa struct {
		LSID     string `json:"lsId"`
		Adv      string `json:"advertisedRouter"`
		Seq      string `json:"sequenceNumber"`
		Checksum string `json:"checksum"`
	}
	var db struct {
		Areas map[string]struct {
			Router  []lsa `json:"routerLinkStates"`
			Network []lsa `json:"networkLinkStates"`
		} `json:"areas"`
		External []lsa `json:"asExternalLinkStates"`
	}
	f.show("ip ospf database", &db)
	theirs := map[string]bool{}
	add := func(t ospf.LSType, list []lsa) {
		for _, l := range list {
			theirs[fmt.Sprintf("%v %s of %s %s %s", t, l.LSID, l.Adv, l.Seq, l.Checksum)] = true
		}
	}
	for _, a := range db.Areas {
		add(ospf.TypeRouter, a.Router)
		add(ospf.TypeNetwork, a.Network)
	}
	add(ospf.TypeExternal, db.External)
	ours := map[string]bool{}
	e.do(func(time.Time) {
		for _, l := range append(e.domain.Area(0).LSAs(), e.domain.Externals()...) {
			ours[fmt.Sprintf("%v %08x %04x", l.LSAKey, uint32(l.Seq), l.Checksum)] = true
		}
	})
	for l := range ours {
		if !theirs[l] {
			return fmt.Sprintf("only the engine has %s; FRR has %v", l, theirs)
		}
	}
	if len(ours) != len(theirs) {
		return fmt.Sprintf("the engine has %v, FRR %v", ours, theirs)
	}
	return ""
}
