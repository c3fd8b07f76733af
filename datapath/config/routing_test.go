package config

import (
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// TestBIRDIncludes proves that an include is found wherever BIRD would find one, and nowhere else.
func TestBIRDIncludes(t *testing.T) {
	for text, want := range map[string][]int{
		"log stderr all;\nprotocol device {}\n":            nil,
		"include \"x\";\n":                                 {1},
		"protocol static {\n ipv4;\n include \"/etc/*\";}": {3},
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
		if got := birdIncludes(text); !slices.Equal(got, want) {
			t.Errorf("%q has includes on lines %v, not %v", text, got, want)
		}
	}
}

// FuzzBIRDIncludes proves that any text is read to its end, and that the word in front of it all is
// always found.
func FuzzBIRDIncludes(f *testing.F) {
	for _, text := range []string{"include \"x\";", "/* # */ 'a' \"b\n\" include", "#\n\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got := birdIncludes("include " + text); len(got) == 0 || got[0] != 1 {
			t.Errorf("%q: %v", text, got)
		}
	})
}

// TestFRRCommands proves that commands, which are no configuration, are refused where they stand.
func TestFRRCommands(t *testing.T) {
	c := topology.ConfigFile{Kind: topology.ConfigFRR, File: "r1.conf", Text: "hostname do\n do start-shell\nrouter bgp 1\ndo\n"}
	err := checkFRR(nil, &topology.Node{Name: "r1"}, c).Err()
	if err == nil || strings.Count(err.Error(), "r1.conf:") != 2 || !strings.Contains(err.Error(), "r1.conf:2") || !strings.Contains(err.Error(), "r1.conf:4") {
		t.Errorf("it says %v", err)
	}
}
