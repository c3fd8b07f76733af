package trivet

import (
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// TestQueue proves that a queue is read in each of its forms, also over a default, written so that
// it is read again, and what is wrong with one said where it is.
func TestQueue(t *testing.T) {
	read := func(queue string) (*topology.Topology, topology.Problems) {
		return Read("q.yaml", []byte("defaults: {link: {queue: pie}}\nnodes: {h1: host, h2: host}\nlinks:\n  - h1 -- h2: {bandwidth: 10mbit, queue: "+queue+"}\n"))
	}
	for text, want := range map[string]string{
		"7": "7", "none": "0", "fq_codel": "fq_codel", "'codel,target=2ms'": "codel,target=2ms", "{codel: {target: 2ms, ecn: true}}": "codel,target=2ms,ecn",
		"{fq_codel: {ecn: no}}": "fq_codel,noecn", "{red: }": "red", "{red: {probability: 0.5, limit: 90000}}": "red,limit=90000,probability=50%",
	} {
		top, p := read(text)
		if p.Err() != nil || top.Links[0].Queue.String() != want {
			t.Errorf("%s: %v", text, p)
			continue
		}
		data, lost, err := Write(top)
		if again, p := Read("q.yaml", data); err != nil || len(lost) > 0 || p.Err() != nil || again.Links[0].Queue != top.Links[0].Queue {
			t.Errorf("%s is written as %s: %v", text, data, p)
		}
	}
	for text, want := range map[string]string{
		"{codle: {target: 2ms}}":          `4:43  queue codle: not a queueing discipline`,
		"{codel: {targte: 2ms}}":          `4:59  queue: codel: there is no parameter "targte"; did you mean target?`,
		"{codel: {target: 2}}":            `4:59  queue: codel: "2" cannot be target`,
		"{codel: {target: [2ms]}}":        "target: needs a value",
		"{codel: {}, pie: {}}":            "needs a discipline with its parameters",
		"{red: {min: 50000, max: 40000}}": "do not rise",
		"[codel]":                         "queue: needs a value",
		"'fq_codel,flows=0'":              "cannot be flows",
	} {
		if _, p := read(text); p.Err() == nil || !strings.Contains(p.Err().Error(), want) {
			t.Errorf("%s: %v, want %s", text, p, want)
		}
	}
}
