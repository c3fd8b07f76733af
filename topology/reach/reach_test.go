package reach

import (
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
	"trivet.dev/trivet/topology/formats/yamlfile/yamltest"
)

// hosts is a topology of hosts h1 to h6 and a switch.
func hosts() *topology.Topology {
	t := &topology.Topology{Nodes: []*topology.Node{{Name: "s1", Kind: topology.Switch}}}
	for _, name := range []string{"h1", "h2", "h3", "h4", "h5", "h6"} {
		t.Nodes = append(t.Nodes, &topology.Node{Name: name, Kind: topology.Host})
	}
	return t
}

// TestRead proves what files say of each pair, in both directions.
func TestRead(t *testing.T) {
	for text, want := range map[string]string{ // the pairs that reach each other, or with ! those that do not
		"default: no\nreach: {h1: [h2, h3], h4: h5}\n":                           "12 21 13 31 45 54",
		"default: no\nreach:\n  h[1-2]: h[1-2], h[3,5]\n":                        "12 21 13 31 15 51 23 32 25 52",
		"default: no\nreach:\n  h1, h2: h3\n":                                    "13 31 23 32",
		"isolate: {h1: [h2], h4: h5}\n":                                          "! 12 21 45 54",
		"default: yes\nreach: {h1: h2}\none-way: {h1: [h3, h4]}\n":               "! 31 41",
		"default: false\none-way:\n  h[1-2]: h3\nisolate: {h1: h2}\nreach: {}\n": "13 23",
		"default: no\n":  "",
		"default: yes\n": "!",
		"default: no\nreach: {h1: &x [h2, h3], h4: *x}\n": "12 21 13 31 42 24 43 34",
		`{"default": false, "reach": {"h1": ["h2"]}}`:     "12 21",
	} {
		e, err := Read("r.yaml", []byte(text), hosts())
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		pairs, negated := strings.CutPrefix(want, "!")
		for _, from := range "123456" {
			for _, to := range "123456" {
				listed := strings.Contains(pairs, string(from)+string(to))
				if got := e.Reaches("h"+string(from), "h"+string(to)); from != to && got != (listed != negated) {
					t.Errorf("%s: h%c reaches h%c: %v", text, from, to, got)
				}
			}
		}
		if err := valid(t, text); err != nil {
			t.Errorf("%s: the schema: %v", text, err)
		}
	}
}

// TestWrong proves that what a file has wrong is told with its place and what to write.
func TestWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "is a mapping, not nothing; write  default: no",
		"5\n":                           `r.yaml:1:1  a file of who reaches whom is a mapping, not "5"`,
		"{}\n":                          "r.yaml:1:1  a file",
		"default: maybe\n":              `r.yaml:1:10  default is not "maybe"; write yes or no`,
		"isolat: {h1: h2}\n":            `r.yaml:1:1  there is no key "isolat"; known are default, isolate, one-way, reach`,
		"isolate: [h1, h2]\n":           "r.yaml:1:10  isolate is a mapping, not a list",
		"reach: {h1: h2}\n":             "r.yaml:1:1  reach says nothing while all other hosts reach each other, too; write  default: no",
		"isolate:\n  h1: [h2, h44]\n":   `r.yaml:2:12  h44: the lab has no host "h44"; did you mean h4?`,
		"isolate:\n  h[1-7]: h2\n":      `r.yaml:2:3  h[1-7]: the lab has no host "h7"`,
		"isolate:\n  h1: s1\n":          "r.yaml:2:7  s1: s1 is no host",
		"isolate:\n  h1: h[3-2]\n":      `r.yaml:2:7  "h[3-2]" is not a range: it runs backwards; write [2-3]`,
		"isolate:\n  h1: {h2: h3}\n":    "r.yaml:2:7  hosts have names, not a mapping",
		"isolate:\n  h1:\n":             "hosts have names, not nothing",
		"isolate:\n  h1: []\n":          "r.yaml:2:7  h1 has an empty list",
		"isolate:\n  h1: h1\n":          "r.yaml:2:7  h1 reaches itself always",
		"isolate:\n  h1: h2,\n":         `r.yaml:2:7  h2,: the lab has no host ""`,
		"isolate: {h1: h2, h1: h3}\n":   "r.yaml:1:19  h1: appears twice",
		"isolate:\n  h1: h[99999999]\n": `the lab has no host "h99999999"`,
		"default: no\nreach:\n  h1: h2\nisolate:\n  h2: h1\n": "r.yaml:5:7  h2 does not reach h1 here, and reaches it by line 3; leave out one of the two",
		"isolate:\n  h1: h2\none-way:\n  h2: h1\n":            "r.yaml:4:7  h2 reaches h1 here, and does not reach it by line 2",
		"isolate:\n  h7: h1\n  h8: h1\n":                      "r.yaml:3:3  h8: the lab has no host",
	} {
		if _, err := Read("r.yaml", []byte(text), hosts()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}

// TestMuch proves that a short file cannot stand for endless work.
func TestMuch(t *testing.T) {
	long := func(name string) string { return "'" + strings.Repeat(name+", ", 10_000) + name + "'" }
	aliases := "isolate:\n  h1: &x [" + strings.Repeat("h2, ", 10_000) + "h3]\n"
	for n := range 1000 {
		aliases += "  '" + strings.Repeat(" ", n) + "h1 ': *x\n"
	}
	for _, text := range []string{"isolate:\n  ? " + long("h1") + "\n  : " + long("h2") + "\n", aliases} {
		if _, err := Read("r.yaml", []byte(text), hosts()); err == nil || !strings.Contains(err.Error(), "more than 10000000 pairs") {
			t.Errorf("%.99v", err)
		}
	}
}

// TestSchema proves that the schema refuses what has no shape that the reader knows; TestRead, that
// it accepts what is right.
func TestSchema(t *testing.T) {
	for _, text := range []string{
		"5\n", "{}\n", "default: maybe\n", "isolat: {h1: h2}\n", "isolate: [h1]\n", "reach: {h1: h2}\n", "isolate: {h1: {h2: h3}}\n", "isolate: {h1: []}\n", "isolate: {h1: }\n",
	} {
		if valid(t, text) == nil {
			t.Errorf("the schema accepts %s", text)
		}
	}
}

func valid(t *testing.T, text string) error {
	return yamltest.Compile(t, Schema()).Validate(yamltest.Instance(t, yamlfile.Dialect{}, []byte(text), 1000))
}

func FuzzRead(f *testing.F) {
	f.Add("default: no\nreach: {h1: [h2, h3]}\none-way: {h4: h5}\nisolate:\n  h[1-2]: h[4,6]\n")
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = Read("r.yaml", []byte(text), hosts())
	})
}
