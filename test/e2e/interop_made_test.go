package e2e

import (
	"fmt"
	"slices"
	"strings"
)

// interopShort are the networks that every run of the tests plays.
var interopShort = []string{"areas"}

// speakers writes the nodes of a made network: routers r are routing nodes, f run FRR, b run BIRD;
// each has a loopback address, a host, and what more says of it.
func speakers(names string, more map[string]string) string {
	var b strings.Builder
	b.WriteString("nodes:\n")
	for i, n := range strings.Fields(names) {
		datapath := map[byte]string{'f': ", datapath: frr", 'b': ", datapath: bird"}[n[0]]
		ospf, ok := more[n]
		if !ok {
			ospf = "ospf: area 0"
		}
		fmt.Fprintf(&b, "  %s: {router: {%s, loopback: 192.0.2.%d%s}}\n  h%s: host\n", n, ospf, i+1, datapath, n)
	}
	return b.String()
}

// made is a network of routers; lines are further nodes and, behind a line of dashes, links.
func made(name, routers string, more map[string]string, fail, kill, lines string) scenario {
	nodes, links, _ := strings.Cut(strings.TrimSpace(lines), "---")
	text := speakers(routers, more)
	for line := range strings.Lines(strings.TrimSpace(nodes)) {
		text += "  " + strings.TrimSpace(line) + "\n"
	}
	text += "links:\n"
	for line := range strings.Lines(strings.TrimSpace(links)) {
		text += "  - " + strings.TrimSpace(line) + "\n"
	}
	for _, r := range strings.Fields(routers) {
		if !slices.Contains(strings.Fields(links), "h"+r) && !slices.Contains(strings.Fields(links), "h"+r+":") {
			text += "  - " + r + " -- h" + r + "\n"
		}
	}
	return scenario{name, text, fail, kill}
}

// area makes a router's settings.
func area(text string) string { return "ospf: {" + text + "}" }

var (
	inArea1 = "ospf: area 1"
	inArea2 = "ospf: area 2"
)

// madeNetworks are made for what they show.
var madeNetworks = []scenario{
	made("line", "r1 f2 r3 b4 r5", nil, "", "f2", "---\nr1 -- f2 -- r3 -- b4 -- r5"),
	made("equal paths", "r1 f2 b3 r4 f5 b6", nil, "r1-f2", "b3", `---
		r1 -- f2 -- r4
		r1 -- b3 -- r4
		r4 -- f5 -- r1
		f5 -- b6 -- f2`),
	made("costs of two ends", "r1 f2 b3 r4", nil, "r1-b3", "f2", `---
		r1 -- f2: {from: {ospf: {cost: 7}}, to: {ospf: {cost: 2}}}
		f2 -- r4: {from: {ospf: {cost: 1}}, to: {ospf: {cost: 9}}}
		r1 -- b3: {from: {ospf: {cost: 3}}, to: {ospf: {cost: 8}}}
		b3 -- r4: {from: {ospf: {cost: 4}}, to: {ospf: {cost: 4}}}
		f2 -- b3: {from: {ospf: {cost: 20}}, to: {ospf: {cost: 1}}}`),
	made("broadcast", "r1 r2 f3 b4 f5", nil, "r1-r2", "f5", `s1: switch
		---
		r1 -- s1: {ospf: {priority: 1}}
		r2 -- s1: {ospf: {priority: 0, cost: 3}}
		f3 -- s1: {ospf: {priority: 5, cost: 2}}
		b4 -- s1: {ospf: {priority: 9, cost: 4}}
		f5 -- s1: {ospf: {priority: 20}}
		r1 -- r2`),
	made("two broadcast networks", "r1 f2 b3 r4 f5 r6", nil, "", "f2", `s[1-2]: switch
		s3: switch
		---
		r1 -- s1: {ospf: {priority: 0}}
		f2 -- s1: {ospf: {priority: 1}}
		b3 -- s1: {ospf: {priority: 1, cost: 6}}
		b3 -- s2: {ospf: {priority: 0, cost: 3}}
		f2 -- s2: {ospf: {priority: 1, cost: 2}}
		r4 -- s2: {ospf: {priority: 255}}
		s2 -- s3
		f5 -- s3: {ospf: {priority: 0}}
		r6 -- s3`),
	made("passwords", "r1 f2 b3 r4", nil, "f2-b3", "f2", `s1: switch
		---
		r1 -- f2: {ospf: {auth: {type: simple, key: walnut}}}
		f2 -- b3: {ospf: {auth: {type: simple, key: hazel}}}
		b3 -- r4: {ospf: {network: broadcast, auth: {type: simple, key: walnut}}}
		r1 -- s1: {ospf: {auth: {type: md5, key: almond, id: 3}}}
		f2 -- s1: {ospf: {auth: {type: md5, key: almond, id: 3}}}
		b3 -- s1: {ospf: {auth: {type: md5, key: almond, id: 3}}}
		r4 -- s1: {ospf: {auth: {type: md5, key: almond, id: 3}}}`),
	made("keys", "r1 f2 b3 b4 r5", nil, "r1-b3", "b4", `s1: switch
		---
		r1 -- f2: {ospf: {auth: {type: md5, key: walnut, id: 200}}}
		r1 -- b3: {ospf: {auth: {type: sha1, key: walnut}}}
		b3 -- b4: {ospf: {auth: {type: sha256, key: a-key-that-is-rather-long-as-many-are}}}
		b4 -- r5: {ospf: {auth: {type: sha384, key: walnut, id: 255}}}
		f2 -- r5: {ospf: {network: broadcast, auth: {type: md5, key: walnut}}}
		b3 -- s1: {ospf: {auth: {type: sha512, key: walnut, id: 4}}}
		r5 -- s1: {ospf: {auth: {type: sha512, key: walnut, id: 4}}}`),
	made("areas", "r1 f2 b3 r4 f5 b6 r7", map[string]string{"r4": inArea1, "f5": inArea1, "b6": inArea2, "r7": inArea2}, "r4-f5", "f5", `s1: switch
		---
		r1 -- f2 -- b3 -- r1
		r1 -- r4: {ospf: area 1}
		f2 -- f5: {ospf: {area: 1, cost: 3}}
		r4 -- f5
		b3 -- s1: {ospf: area 2}
		r1 -- s1: {ospf: {area: 2, cost: 2}}
		b6 -- s1
		r7 -- s1`),
	made("ranges", "r1 f2 b3 r4 f5 b6", map[string]string{
		"r1": area("areas: {1: {ranges: [10.1.0.0/16, 192.0.2.4/31]}}"), "f2": area("areas: {1: {ranges: [10.1.0.0/16, 192.0.2.4/31]}}"),
		"b3": area("areas: {2: {ranges: [10.2.0.0/16, 192.0.2.6/32 hide]}}"), "r4": inArea1, "f5": inArea1, "b6": inArea2}, "r1-f2", "", `---
		r1 -- f2 -- b3 -- r1
		r1 -- r4: {ospf: area 1}
		f2 -- f5: {ospf: area 1}
		r4 -- f5: {ospf: {cost: 4}}
		b3 -- b6: {ospf: area 2}
		r4 -- hr4: {from: {address: 10.1.1.1/24}, to: {address: 10.1.1.2/24}}
		f5 -- hf5: {from: {address: 10.1.2.1/24}, to: {address: 10.1.2.2/24}}
		b6 -- hb6: {from: {address: 10.2.1.1/24}, to: {address: 10.2.1.2/24}}`),
	made("stub areas", "r1 f2 b3 r4 f5 b6 r7 f8", map[string]string{
		"f2": area("areas: {1: {stub: true, default_cost: 5}}"), "r1": area("areas: {1: {stub: true, default_cost: 2}, 3: {stub: true, no_summary: true, default_cost: 7}}"),
		"b3": area("areas: {2: {stub: true, no_summary: true, default_cost: 3}}"), "r4": inArea1, "f5": inArea1, "b6": inArea2, "r7": inArea2, "f8": "ospf: area 3"}, "f2-f5", "f5", `---
		r1 -- f2 -- b3 -- r1
		r1 -- r4: {ospf: area 1}
		f2 -- f5: {ospf: area 1}
		r4 -- f5
		b3 -- b6: {ospf: area 2}
		b6 -- r7
		r1 -- f8: {ospf: area 3}`),
	made("external routes", "r1 f2 b3 r4 f5 b6", map[string]string{
		"r1": "routes: [198.51.100.0/26 via 10.0.1.9, 203.0.113.0/24 via 10.0.1.9], " + area("redistribute: [static metric 30 type 1, connected metric 12 type 2]"),
		"f2": "routes: [198.51.100.64/26 via 10.0.2.9, 203.0.113.0/24 via 10.0.2.9], " + area("redistribute: [static metric 31 type 1, connected metric 5 type 1]"),
		"b3": "routes: [198.51.100.128/26 via 10.0.3.9], " + area("redistribute: [static metric 40 type 2, connected metric 9 type 1]"),
		"f5": "ospf: {area: 1, redistribute: [connected metric 3 type 1]}", "r4": "ospf: {area: 1, redistribute: [connected]}", "b6": "ospf: {area: 1, redistribute: [connected metric 7 type 2]}"}, "r1-f2", "f2", `---
		r1 -- f2 -- b3 -- r1
		r1 -- r4: {ospf: area 1}
		b3 -- b6: {ospf: area 1}
		r4 -- f5 -- b6
		r1 -- hr1: {ospf: off, from: {address: 10.0.1.1/24}, to: {address: 10.0.1.2/24}}
		f2 -- hf2: {ospf: off, from: {address: 10.0.2.1/24}, to: {address: 10.0.2.2/24}}
		b3 -- hb3: {ospf: off, from: {address: 10.0.3.1/24}, to: {address: 10.0.3.2/24}}
		r4 -- hr4: {ospf: off}
		f5 -- hf5: {ospf: off}
		b6 -- hb6: {ospf: off}`),
	made("default routes", "r1 f2 b3 r4 f5", map[string]string{
		"r1": area("redistribute: [default metric 10 type 2]"), "f2": area("redistribute: [default metric 10 type 2]"), "b3": area("redistribute: [default metric 50 type 1]")}, "r1-r4", "b3", `---
		r1 -- r4 -- f2
		r4 -- f5 -- b3
		r1 -- b3: {ospf: {cost: 9}}
		f2 -- b3`),
	made("virtual links", "r1 f2 r3 b4 f5 r6", map[string]string{
		"f2": area("area: 1, virtual_links: [{area: 1, router: r1, hello: 1s, dead: 4s}, {area: 1, router: b4, hello: 1s, dead: 4s}]"),
		"r1": area("area: 0, virtual_links: [{area: 1, router: f2, hello: 1s, dead: 4s}]"), "r3": inArea1,
		"b4": area("area: 1, virtual_links: [{area: 1, router: f2, hello: 1s, dead: 4s}]"), "f5": inArea2, "r6": "ospf: area 3"}, "r1-r3", "", `---
		r1 -- r3: {ospf: area 1}
		r3 -- f2: {ospf: area 1}
		r1 -- b4: {ospf: {area: 1, cost: 8}}
		f2 -- b4: {ospf: {area: 1, cost: 2, network: broadcast}}
		f2 -- f5: {ospf: area 2}
		b4 -- r6: {ospf: area 3}`),
}
