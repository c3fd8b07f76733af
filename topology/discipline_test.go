package topology

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestQueues proves that a queue is what it says, with tc's values for what it does not say, that
// it is written as briefly as it can be read, and equal if it means the same.
func TestQueues(t *testing.T) {
	for _, c := range []struct {
		text, written string
		want          Queue
	}{
		{"100", "100", Queue{Limit: 100}},
		{"codel", "codel", Queue{Discipline: CoDel, Limit: 1000, Target: 5e6, Interval: 100e6}},
		{"codel,target=2ms,ecn", "codel,target=2ms,ecn", Queue{Discipline: CoDel, Limit: 1000, Target: 2e6, Interval: 100e6, ECN: true}},
		{"codel,interval=0.1s,noecn", "codel", Queue{Discipline: CoDel, Limit: 1000, Target: 5e6, Interval: 100e6}},
		{"fq_codel,ecn=false,flows=8", "fq_codel,noecn,flows=8", Queue{Discipline: FQCoDel, Limit: 10240, Target: 5e6, Interval: 100e6, Flows: 8, Quantum: 1514}},
		{"pie", "pie", Queue{Discipline: PIE, Limit: 1000, Target: 15e6, TUpdate: 15e6, Alpha: 2, Beta: 20}},
		{"red", "red", Queue{Discipline: RED, Limit: 1_000_000, Max: 250_000, Min: 83_333, AvPkt: 1000, Burst: 138, Probability: 0.02}},
		{"red,max=35000,min=30000,avpkt=1500,burst=20,probability=1,ecn", "red,max=35000,min=30000,avpkt=1500,burst=20,probability=100%,ecn", MininetRED(true)},
	} {
		q, err := ParseQueue(c.text)
		if err != nil || q != c.want || q.String() != c.written || q.check() != nil {
			t.Errorf("%s is %+v, written %s (%v, %v)", c.text, q, q, err, q.check())
		}
		var back Queue
		if b, err := json.Marshal(q); err != nil || json.Unmarshal(b, &back) != nil || back != q {
			t.Errorf("%s is %s in JSON, and that %+v", c.text, b, back)
		}
	}
	if (Queue{Discipline: CoDel, Limit: 5, Quantum: 7}).check() == nil || (Queue{Limit: 5, ECN: true}).check() == nil || (Queue{Limit: -1}).check() == nil {
		t.Error("a queue with parameters of another discipline is valid")
	}
	var q Queue
	if err := json.Unmarshal([]byte(`"codel,target=1h"`), &q); err == nil || !strings.Contains(err.Error(), "target") {
		t.Errorf("JSON: %v", err)
	}
}

// TestTogether proves that options which need each other are refused without, whoever sets them,
// and that a discipline without effect is said to be so.
func TestTogether(t *testing.T) {
	top := &Topology{}
	top.AddNode(Host, "h1")
	top.AddNode(Host, "h2")
	l := top.AddLink("h1", "h2")
	l.Reorder = 0.5
	if err := Validate(top).Err(); err == nil || !strings.Contains(err.Error(), "there is no delay") || l.CheckOptions() == nil {
		t.Errorf("reorder without a delay: %v", err)
	}
	l.Jitter, l.Queue = 1e6, Queue{Discipline: PIE, Limit: 1000, Target: 15e6, TUpdate: 15e6, Alpha: 2, Beta: 20}
	p := Validate(top)
	if p.Err() != nil || l.CheckOptions() != nil || len(p.Warnings()) == 0 || !strings.Contains(p.Warnings().Error(), "pie has no effect") {
		t.Errorf("reorder with jitter, pie without a bandwidth: %v", p)
	}
	top.Nodes[0].Model = &Model{Ports: 1e8, Source: "a test"}
	if p := Validate(top); p.Err() != nil || strings.Contains(fmt.Sprint(p.Warnings()), "has no effect") {
		t.Errorf("pie at a port of a model, which has a bandwidth: %v", p)
	}
	top.Nodes[0].Model = nil
	l.Queue.Flows = 7
	if Validate(top).Err() == nil {
		t.Error("PIE with flows is valid")
	}
}
