package openwrt

import (
	"fmt"
	"slices"
	"strings"
)

// A section of a UCI file, OpenWrt's configuration.
type section struct {
	kind string
	name string // empty: anonymous, identified by its index among its type
	at   string // what uci(1) calls it: "lan", or "@device[0]"

	options []option
}

type option struct {
	name   string
	list   bool
	values []string // a list's; an option has one
}

func (s section) get(name string) *option {
	for i := range s.options {
		if s.options[i].name == name {
			return &s.options[i]
		}
	}
	return nil
}

func (s section) value(name string) string {
	if o := s.get(name); o != nil {
		return o.values[0]
	}
	return ""
}

// parseUCI reads what  uci export FILE  prints.
func parseUCI(text string) ([]section, error) {
	var out []section
	count := map[string]int{}
	for rest := text; ; {
		words, after, err := uciLine(rest)
		if err != nil {
			return nil, err
		}
		if rest == "" {
			return out, nil
		}
		switch rest = after; {
		case len(words) == 0 || words[0] == "package":
		case words[0] == "config" && (len(words) == 2 || len(words) == 3):
			s := section{kind: words[1], at: fmt.Sprintf("@%s[%d]", words[1], count[words[1]])}
			if count[s.kind]++; len(words) == 3 {
				s.name, s.at = words[2], words[2]
			}
			out = append(out, s)
		case (words[0] == "option" || words[0] == "list") && len(words) == 3 && len(out) > 0:
			s := &out[len(out)-1]
			if o := s.get(words[1]); o != nil && o.list {
				o.values = append(o.values, words[2])
			} else {
				s.options = append(s.options, option{words[1], words[0] == "list", []string{words[2]}})
			}
		default:
			return nil, fmt.Errorf("its configuration says %q, which is not understood", strings.Join(words, " "))
		}
	}
}

// uciLine takes the words of the first line from a text. Within quotes a line may continue over
// several.
func uciLine(text string) (words []string, rest string, err error) {
	var word strings.Builder
	inWord := false
	end := func() {
		if inWord {
			words = append(words, word.String())
		}
		inWord = false
		word.Reset()
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\n':
			end()
			return words, text[i+1:], nil
		case ' ', '\t', '\r':
			end()
		case '\'', '"':
			inWord = true
			close := strings.IndexByte(text[i+1:], c)
			if close < 0 {
				return nil, "", fmt.Errorf("its configuration has a quote without an end")
			}
			word.WriteString(text[i+1 : i+1+close])
			i += 1 + close
		case '\\':
			if i+1 < len(text) {
				i++
			}
			inWord = true
			word.WriteByte(text[i])
		default:
			inWord = true
			word.WriteByte(c)
		}
	}
	end()
	return words, "", nil
}

// edits are commands of uci(1), without the name of the program.
type edits [][]string

func (e *edits) set(at, value string) {
	*e = append(*e, []string{"set", "network." + at + "=" + value})
}

// editNetwork makes each port of a plan an interface of its own: it is in no bridge, has no
// addresses and is up. It handles both forms of OpenWrt's configuration: sections for devices and
// their VLANs, with lists of ports (since 21.02), and bridges as interfaces with a list of words in
// ifname.
func editNetwork(config []section, ports []Port) (out edits) {
	old := slices.ContainsFunc(config,
		func(s section) bool { return s.kind == "interface" && s.get("ifname") != nil }) &&
		!slices.ContainsFunc(config, func(s section) bool { return s.kind == "interface" && s.get("device") != nil })
	device := "device"
	if old {
		device = "ifname"
	}
	for _, p := range ports {
		own := fmt.Sprintf("trivet_p%d", p.Number)
		if p.VLAN != 0 {
			vlan := fmt.Sprintf("trivet_v%d", p.Number)
			out.set(vlan, "device")
			out.set(vlan+".type", "8021q")
			out.set(vlan+".ifname", p.On)
			out.set(vlan+".vid", fmt.Sprint(p.VLAN))
			out.set(vlan+".name", p.Device)
		}
		out.set(own, "interface")
		out.set(own+".proto", "none")
		out.set(own+"."+device, p.Device)
	}
	for _, s := range config {
		for _, name := range []string{"ports", "ifname", "device"} {
			if o := s.get(name); o != nil {
				out.release(s, *o, ports)
			}
		}
	}
	return out
}

// release removes ports from an option that lists the members of a section.
func (e *edits) release(s section, o option, ports []Port) {
	bridge := s.value("type") == "bridge" || s.kind == "bridge-vlan"
	ours := func(word string) bool {
		name, _, _ := strings.Cut(word, ":") // of VLANs: lan1:u*
		return slices.ContainsFunc(ports, func(p Port) bool { return p.Device == name })
	}
	switch {
	case s.kind == "interface" && !bridge && o.name != "ports":
		if slices.ContainsFunc(strings.Fields(o.values[0]), ours) {
			e.set(s.at+".proto", "none")
		}
	case !bridge || o.name == "device":
	case o.list:
		for _, word := range o.values {
			if ours(word) {
				*e = append(*e, []string{"del_list", "network." + s.at + "." + o.name + "=" + word})
			}
		}
	default:
		had := strings.Fields(o.values[0])
		left := slices.DeleteFunc(slices.Clone(had), ours)
		switch {
		case len(left) == len(had):
		case len(left) == 0:
			*e = append(*e, []string{"delete", "network." + s.at + "." + o.name})
		default:
			e.set(s.at+"."+o.name, strings.Join(left, " "))
		}
	}
}
