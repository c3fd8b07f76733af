package miniedit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// TestProblems proves that each error in a file is reported at its line and column, with what to
// do.
func TestProblems(t *testing.T) {
	file := func(hosts, switches, links string) string {
		return `{"version": "2", "controllers": [],` + "\n" + `"hosts": [` + hosts + "],\n" + `"switches": [` + switches + "],\n" + `"links": [` + links + "]}"
	}
	h := func(opts string) string {
		return file(`{"number": "1", "x": "1.0", "y": "2.0", "opts": {`+opts+`}}`, "", "")
	}
	for _, c := range []struct{ what, data, want string }{
		{"an empty file", "", "f.mn:1:1  the file ends before the topology does; a .mn file is JSON"},
		{"not JSON", "emu:\n", "f.mn:1:1  this is not JSON: invalid character 'e'"},
		{"a list", "[]", "f.mn:1:1  is not a MiniEdit topology"},
		{"other JSON", `{"name": "x"}`, "f.mn:1:1  is not a MiniEdit topology"},
		{"a missing comma", "{\"hosts\": []\n  \"links\": []}", "f.mn:2:3  invalid character '\"' after object key:value pair"},
		{"a cut-off file", "{\"hosts\": [\n  {\"number\": \"1\",", "f.mn:2:18  the file ends within the object that starts at line 2; it seems to be cut off"},
		{"a cut-off word", "{\"hosts\": [\n  {\"numb", "f.mn:2:9  the file ends within the object that starts at line 2"},
		{"more after the end", file("", "", "") + "\n{}", "f.mn:5:1  something follows the end of the topology"},
		{"a key twice", "{\"hosts\": [],\n\"hosts\": []}", `f.mn:2:1  "hosts" is already defined at line 1; remove one of them`},
		{"invalid UTF-8", "{\"hosts\": [\n\"a\xff\"]}", "f.mn:2:3  this byte is not UTF-8 text"},
		{"a number out of range", h(`"hostname": "h1", "cpu": 1e999`), "f.mn:2:85  the number is out of range"},
		{"hosts that are no list", `{"hosts": 3}`, "f.mn:1:11  hosts: is 3, not a list"},
		{"a host that is no object", file(`"h1"`, "", ""), `f.mn:2:11  hosts: "h1" cannot be in this list`},
		{"no hostname", file(`{"x": "1", "y": "2", "opts": {}}`, "", ""), "f.mn:2:11  the host has no hostname"},
		{"a hostname of another type", h(`"hostname": ["h1"]`), "f.mn:2:72  host: hostname is a list, not text"},
		{"no controller's hostname", `{"hosts": [], "version": "2", "controllers": [{"opts": {}}]}`, "f.mn:1:47  the controller has no hostname"},
		{"a bad address", h(`"hostname": "h1", "ip": "10.0.0.300"`), `host h1: ip "10.0.0.300" is not an IPv4 address; write 10.0.0.1`},
		{"a number outside ipBase", `{"application": {"ipBase": "10.0.0.0/30"}, "hosts": [{"number": "9", "opts": {}}]}`, "host h9: 10.0.0.0/30 has no address number 9; give it an ip"},
		{"a bad gateway", h(`"hostname": "h1", "defaultRoute": "via 10.0.0.1"`), `host h1: defaultRoute "via 10.0.0.1" is not an address`},
		{"a bad place", file(`{"number": "1", "x": "left", "y": "2.0", "opts": {}}`, "", ""), `host h1: "left" cannot be the x coordinate`},
		{"bad cores", h(`"hostname": "h1", "cores": "0,x"`), `host h1: cores "0,x" is not a list of processors`},
		{"bad directories", h(`"hostname": "h1", "privateDirectory": [["/a"]]`), "host h1: a list is not a private directory"},
		{"a bad type", file("", `{"number": "1", "opts": {"switchType": "lxbr"}}`, ""), `switch s1: there is no switchType "lxbr"; choose one of default`},
		{"a bad dpid", file("", `{"number": "1", "opts": {"dpid": "xyz"}}`, ""), `switch s1: dpid "xyz" is not a datapath ID`},
		{"a bad port", `{"hosts": [], "controllers": [{"opts": {"hostname": "c0", "remotePort": 70000}}]}`, "controller c0: remotePort 70000; write a number from 1 to 65535"},
		{"a link without an end", file("", "", `{"src": "h1", "opts": {}}`), "f.mn:4:11  the link is missing an end"},
		{"a bad bandwidth", file("", "", `{"src": "a", "dest": "b", "opts": {"bw": "fast"}}`), `f.mn:4:52  link a-b: bw "fast"; write a number from 0`},
		{"a bad delay", file("", "", `{"src": "a", "dest": "b", "opts": {"delay": "5 parsec"}}`), `link a-b: delay "5 parsec" is not a time span; write 10ms`},
		{"too much loss", file("", "", `{"src": "a", "dest": "b", "opts": {"loss": 101}}`), "link a-b: loss 101; write a number from 0 to 100"},
		{"half a packet", file("", "", `{"src": "a", "dest": "b", "opts": {"max_queue_size": 1.5}}`), "max_queue_size 1.5; write a whole number"},
	} {
		_, problems := Read("f.mn", []byte(c.data), formats.Options{})
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got\n%v\nwant\n%s", c.what, err, c.want)
		}
	}
}

// TestWarnings proves that what is read but has no effect is reported, and is not an error.
func TestWarnings(t *testing.T) {
	data := `{"version": "3", "hosts": [{"number": "1", "opts": {"sched": "cfs", "cpu": 2, "hostnam": "x"}}],
"switches": [], "links": [{"src": "h1", "dest": "h1", "opts": {"speedup": 3, "dealy": "5ms", "delay": "20"}}]}`
	_, problems := Read("f.mn", []byte(data), formats.Options{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`f.mn:1:13  warning: version "3": only versions 1 and 2 are known`,
		`f.mn:1:90  warning: host h1: "hostnam" is unknown and has no effect; did you mean hostname?`,
		`f.mn:1:76  warning: host h1: cpu 2 is not a limit`,
		`warning: link h1-h1: delay "20" has no unit: it is in microseconds, as in MiniEdit; write "20ms" if milliseconds are meant`,
		`f.mn:2:75  warning: link h1-h1: speedup has no effect`,
		`warning: link h1-h1: "dealy" is unknown and has no effect; did you mean delay?`,
	} {
		if !strings.Contains(problems.Error(), want) {
			t.Errorf("missing %q in\n%v", want, problems)
		}
	}
}

// TestAllProblemsAtOnce proves that reading continues after an error, so that all errors in a file
// can be fixed at once.
func TestAllProblemsAtOnce(t *testing.T) {
	_, problems := Read("f.mn", []byte(`{"hosts": [{"number": "1", "opts": {"ip": "x"}}, 7], "links": [{}]}`), formats.Options{})
	if err, ok := problems.Err().(topology.Problems); !ok || len(err) != 3 {
		t.Errorf("want three problems, got\n%v", problems)
	}
}

// TestHostile proves that any file makes Read either succeed or report a problem, at a bounded
// cost: all of these end within the test's time.
func TestHostile(t *testing.T) {
	host := `{"number": "1", "x": "1.0", "y": "2.0", "opts": {"hostname": "h1"}},`
	for what, data := range map[string][]byte{
		"deep lists":          bytes.Repeat([]byte("["), 1<<20),
		"deep objects":        bytes.Repeat([]byte(`{"a":`), 1<<20),
		"a line of 10 MB":     []byte(`{"hosts": [` + strings.Repeat(host, 10<<20/len(host)) + `7]}`),
		"a string of 10 MB":   []byte(`{"hosts": [{"number": "1", "opts": {"hostname": "` + strings.Repeat("x", 10<<20) + `", "ip": 7}}]}`),
		"millions of numbers": []byte(`{"hosts": [` + strings.Repeat("0,", 2<<20) + `0]}`),
		"zero bytes":          make([]byte, 1<<20),
		"a huge core range":   []byte(`{"hosts": [{"number": "1", "opts": {"cores": "` + strings.Repeat("0-4095,", 1000) + `0"}}]}`),
	} {
		if _, problems := Read("f.mn", data, formats.Options{}); problems.Err() == nil {
			t.Errorf("%s: no problem", what)
		}
	}
	// Cutting the file off anywhere is a problem.
	data, err := os.ReadFile("testdata/plain.mn")
	if err != nil {
		t.Fatal(err)
	}
	for end := range len(data) {
		if _, problems := Read("f.mn", data[:end], formats.Options{}); problems.Err() == nil {
			t.Errorf("cut off at %d: no problem", end)
		}
	}
}

// TestWrongTypes proves that a value of any type anywhere in a file is read or reported, without a
// panic.
func TestWrongTypes(t *testing.T) {
	data, err := os.ReadFile("testdata/hosts.mn")
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []any{nil, true, 7.5, "text", []any{1.0}, map[string]any{"a": 1.0}} {
		var root any
		if err := json.Unmarshal(data, &root); err != nil {
			t.Fatal(err)
		}
		everywhere(root, wrong, func() {
			b, _ := json.Marshal(root)
			if top, problems := Read("f.mn", b, formats.Options{}); problems.Err() == nil {
				if _, _, err := Write(top); err != nil {
					t.Errorf("read, but cannot be written: %v\n%s", err, b)
				}
			}
		})
	}
}

// everywhere replaces each value in v by wrong, one at a time.
func everywhere(v, wrong any, check func()) {
	switch v := v.(type) {
	case map[string]any:
		for k, old := range v {
			v[k] = wrong
			check()
			v[k] = old
			everywhere(old, wrong, check)
		}
	case []any:
		for i, old := range v {
			v[i] = wrong
			check()
			v[i] = old
			everywhere(old, wrong, check)
		}
	}
}

// FuzzRead proves that what is read without an error can be written, and that the written file
// reads as the same network and is written the same way again.
func FuzzRead(f *testing.F) {
	for _, file := range corpus(f) {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		top, problems := Read("f.mn", data, formats.Options{})
		if problems.Err() != nil {
			return
		}
		first, losses, err := Write(top)
		if err != nil {
			t.Fatal(err)
		}
		back, problems := Read("f.mn", first, formats.Options{})
		if problems.Err() != nil {
			t.Fatal(problems.Err())
		}
		if len(losses) == 0 {
			if changes := topology.Diff(top, back); len(changes) > 0 {
				t.Fatal(fmt.Sprint("changed, but nothing is reported lost: ", changes))
			}
		}
		second, _, err := Write(back)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("written again, the file is another: %v\n%s\n%s", err, first, second)
		}
	})
}
