package topology_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/trivet"
)

var longRange = regexp.MustCompile(`\[[^\]]*[0-9]{3}|\*`) // or aliases

// asJSON is everything that the model holds.
func asJSON(t *testing.T, top *topology.Topology) []byte {
	b, err := json.Marshal(top)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzResolve proves, for whatever a file says, that Resolve does not panic and leaves its argument
// unchanged; that it gives the same result each time; and that the result passes Validate, resolves
// to itself, and survives JSON.
func FuzzResolve(f *testing.F) {
	for _, pattern := range []string{"../examples/*.yaml", "../test/hostile/testdata/trivet/*.yaml", "formats/trivet/testdata/*/*.yaml"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			if data, err := os.ReadFile(file); err == nil && len(data) < 4096 {
				f.Add(data)
			}
		}
	}
	f.Add([]byte("ipv6: auto\nsubnet: 10.0.0.0/22\nnodes: {r1: router, r2: router, n: nat, s1: switch, h1: host}\nlinks: [r1 -- s1 -- r2, h1 -- s1, n -- r2]"))
	defaults := topology.Defaults{Datapath: topology.Bridge, Controlled: topology.OVS, Controller: topology.ControllerNone}
	f.Fuzz(func(t *testing.T, data []byte) {
		if longRange.Match(data) {
			return // of large topologies, only the time they take is of interest
		}
		top, problems := trivet.Read("t.yaml", data)
		if problems.Err() != nil {
			return
		}
		before := asJSON(t, top)
		first, problems := topology.Resolve(top, defaults)
		if !bytes.Equal(before, asJSON(t, top)) {
			t.Fatal("the argument was changed")
		}
		if (first == nil) != (problems.Err() != nil) {
			t.Fatalf("a topology, or problems: %v, %v", first, problems)
		}
		if first == nil {
			return
		}
		again, _ := topology.Resolve(top, defaults)
		if a, b := asJSON(t, first), asJSON(t, again); !bytes.Equal(a, b) {
			t.Fatalf("not the same each time:\n%s\n%s", a, b)
		}
		if err := topology.Validate(first).Err(); err != nil {
			t.Fatalf("the result is not valid: %v", err)
		}
		second, problems := topology.Resolve(first, defaults)
		if second == nil {
			t.Fatalf("the result does not resolve: %v", problems)
		}
		if a, b := asJSON(t, first), asJSON(t, second); !bytes.Equal(a, b) {
			t.Fatalf("resolving again changes it:\n%s\n%s", a, b)
		}
		var read topology.Topology
		if err := json.Unmarshal(asJSON(t, first), &read); err != nil {
			t.Fatal(err)
		}
		if a, b := asJSON(t, first), asJSON(t, &read); !bytes.Equal(a, b) || !topology.Equal(first, &read) {
			t.Fatalf("JSON loses something:\n%s\n%s", a, b)
		}
		topology.Blocked(first)
	})
}

// FuzzParseEvent proves that an event that can be read can be written and read again, unchanged.
func FuzzParseEvent(f *testing.F) {
	for _, s := range []string{"at 30s: r1 -- r2 down", "at 1min: link r1 -- r2 delay=20ms loss=1%", "at 5s: h1 run ping -c1 h2", "at 0ns: a -- b queue=none up"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := topology.ParseEvent(s)
		if err != nil {
			return
		}
		again, err := topology.ParseEvent(e.String())
		if err != nil || again.String() != e.String() {
			t.Fatalf("%q is %q is %q (%v)", s, e, again, err)
		}
		e.Action.Change.Apply(&topology.Link{})
	})
}

// FuzzUnits proves that each unit's value is in its range, and is unchanged after being written and
// read.
func FuzzUnits(f *testing.F) {
	for _, s := range []string{"1gbit", "0.5mbit", "10Mbps", "10ms", "1.5s", "5min", "0.1%", "0.001", "25%", "26", "0x1a", "00:00:00:00:00:00:00:1a", "02:00:00:00:00:01", "NaN", "1e999", "-0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		same(t, s, topology.ParseRate, func(r topology.Rate) bool { return r >= 1 && r <= 1e15 })
		same(t, s, topology.ParseDuration, func(d topology.Duration) bool { return d >= 0 })
		same(t, s, topology.ParseFraction, func(f topology.Fraction) bool { return f >= 0 && f <= 1 })
		same(t, s, topology.ParseCPU, func(c topology.CPU) bool { return c.CPUs >= 0 && c.CPUs <= 4096 && c.Share >= 0 && c.Share <= 1 })
		same(t, s, topology.ParseDPID, func(d topology.DPID) bool { return d != 0 })
		same(t, s, topology.ParseMAC, func(m topology.MAC) bool { return m[0]&1 == 0 })
		topology.ParseQueue(s)
	})
}

// FuzzParseRedistribute proves that a rule of redistribution is refused, or unchanged after being
// written and read, and never announces and denies at once.
func FuzzParseRedistribute(f *testing.F) {
	for _, s := range []string{"static", "deny connected 10.0.0.0/8 ge 9", "static 10.20.0.0/16 le 24 tag 7 set metric 30 type 1 tag 8", "default metric 5", "program set set", "static 0.0.0.0/0 le 32", "deny protocol rip fd00::/32 le 64 tag 7 into bgp"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		same(t, s, topology.ParseRedistribute, func(r topology.Redistribute) bool {
			return r.Into != "" && (!r.Deny || r.Metric+r.Type+int(r.SetTag) == 0)
		})
		same(t, s, topology.ParseOSPFRedistribute, func(r topology.OSPFRedistribute) bool { return !r.Deny || r.Metric+r.Type+int(r.SetTag) == 0 })
	})
}

func same[T interface {
	comparable
	String() string
}](t *testing.T, s string, parse func(string) (T, error), valid func(T) bool) {
	t.Helper()
	v, err := parse(s)
	if err != nil {
		return
	}
	again, err := parse(v.String())
	if err != nil || again != v || !valid(v) {
		t.Errorf("%q is %v, then %v (%v)", s, v, again, err)
	}
}
