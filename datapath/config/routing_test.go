package config

import (
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// birdLines are the lines on which a configuration names files.
func birdLines(text string) (out []int) {
	birdFiles(text, func(line int, _, _ string, _ ...any) { out = append(out, line) })
	return out
}

// TestBIRDFiles proves that an include is found wherever BIRD would find one, and nowhere else, and
// so is a path.
func TestBIRDFiles(t *testing.T) {
	for text, want := range map[string][]int{
		"log stderr all;\nprotocol device {}\n":            nil,
		"include \"x\";\n":                                 {1},
		"protocol static {\n ipv4;\n include \"/etc/*\";}": {3, 3},
		"# include \"x\";\n/* include\n include */\n":      nil,
		"/* a */include \"x\";\n":                          {1},
		"/* a\n */ /* b */ include 'x';\n":                 {2},
		"filter \"include\" {}\n":                          nil,
		"define includes = 1; define my_include = 2;\n":    nil,
		"define a = \"x\ny\"; include\n\"z\";":             {2},
		"a;include b;{include c}\n\ninclude":               {1, 1, 3},
		"/* never ends include":                            nil,
		"\"never ends include":                             nil,
		"#":                                                nil, "": nil, "/*": nil, "\"": nil, "include": {1},
	} {
		if got := birdLines(text); !slices.Equal(got, want) {
			t.Errorf("%q has includes on lines %v, not %v", text, got, want)
		}
	}
}

// FuzzBIRDFiles proves that any text is read to its end, and that the word in front of it all is
// always found.
func FuzzBIRDFiles(f *testing.F) {
	for _, text := range []string{"include \"x\";", "/* # */ 'a' \"b\n\" include", "#\n\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got := birdLines("include " + text); len(got) == 0 || got[0] != 1 {
			t.Errorf("%q: %v", text, got)
		}
	})
}

// TestFRRCommands proves that commands, which are no configuration, are refused where they stand,
// and so are files anywhere but where a router's logs are.
func TestFRRCommands(t *testing.T) {
	for line, refused := range map[string]bool{
		"! log file /etc/x": false, "# do": false, "!/x": false,
		"hostname do": false, " do start-shell": true, "do": true,
		"log file /var/log/frr/bgpd.log": false, "log file bgpd.log debugging": false, "log file /etc/x": true, "lo fi /var/log/x": true,
		"log file /var/log/frr/../x": true, "log file ../../x": true, "dump bgp all /tmp/x": true, "log file /var/log/frr": true,
		" description to /dev/null": false, " neighbor 10.0.0.1 description a/b /c": false, " network 10.0.0.0/8": false,
		" neighbor fd00::1 remote-as 1": false, " network ::/0": false,
	} {
		c := topology.ConfigFile{Kind: topology.ConfigFRR, TextFile: topology.TextFile{File: "r1.conf", Text: "hostname r1\n" + line + "\n"}}
		err := checkFRR(nil, &topology.Node{Name: "r1"}, c).Err()
		if refused != (err != nil) || refused && !strings.Contains(err.Error(), "r1.conf:2") {
			t.Errorf("%s: it says %v", line, err)
		}
	}
}
