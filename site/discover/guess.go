package discover

import (
	"slices"
	"strings"

	"trivet.dev/trivet/site"
)

// Guess is what a device may be.
type Guess struct {
	Name   string   `json:"name"`
	Kind   string   `json:"kind,omitempty"` // pi, jetson, or of a site.DeviceKind; empty: unknown
	User   string   `json:"user"`           // default user of its vendor's image
	Labels []string `json:"labels,omitempty"`
	Why    string   `json:"why"`
}

// vendors are makers of typical devices of racks, by the first three bytes of their MACs (IEEE
// Registration Authority, MA-L).
var vendors = map[string]string{
	"28:cd:c1": raspberry, "2c:cf:67": raspberry, "3a:35:41": raspberry, "88:a2:9e": raspberry, "b8:27:eb": raspberry,
	"d8:3a:dd": raspberry, "dc:a6:32": raspberry, "e4:5f:01": raspberry, "00:04:4b": nvidia, "3c:6d:66": nvidia,
	"48:b0:2d": nvidia,
}

const (
	raspberry = "Raspberry Pi"
	nvidia    = "NVIDIA"
)

func vendorOf(mac string) string {
	if len(mac) < 8 {
		return ""
	}
	return vendors[mac[:8]]
}

// guess guesses what a device is by its vendor, its SSH server and its name, in this order, as the
// latter two can be anything.
func guess(d *Device) Guess {
	banner, host := strings.ToLower(d.Banner), strings.ToLower(d.Host)
	has := func(s string, words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
	}
	pi := Guess{Kind: "pi", User: "pi", Labels: []string{"pi"}}
	jetson := Guess{Kind: "jetson", User: "nvidia", Labels: []string{"jetson", "gpu"}}
	because := func(g Guess, why string) Guess {
		g.Why = why
		return g
	}
	server, serves := deviceBy(banner, func(g site.DeviceGuess) []string { return g.Servers })
	called, _ := deviceBy(host, func(g site.DeviceGuess) []string { return g.Hosts })
	switch {
	case server != nil && d.Vendor == "":
		return because(*server, "its SSH server is "+serves)
	case d.Vendor == raspberry:
		return because(pi, "its MAC is one of Raspberry Pi's")
	case d.Vendor == nvidia:
		return because(jetson, "its MAC is one of NVIDIA's")
	case has(banner, "raspbian", "rpt"): // Raspberry Pi OS: Debian-5+rpt1
		return because(pi, "its SSH server is Raspberry Pi OS's")
	case called != nil:
		return because(*called, "it is called so")
	case has(host, "raspberrypi"):
		return because(pi, "it is called so")
	case has(host, "jetson", "nvidia", "tegra", "orin", "xavier"):
		return because(jetson, "it is called so")
	case d.Banner == "":
		return Guess{User: "root", Why: "no SSH server answers"}
	}
	return Guess{User: "root", Why: "nothing tells what it is"}
}

// deviceBy is the first kind of devices that are only configured of whose words one is in a text,
// and that word; nil if there is none.
func deviceBy(text string, of func(site.DeviceGuess) []string) (is *Guess, by string) {
	for _, k := range site.DeviceKinds() {
		for _, word := range of(k.Guess) {
			if strings.Contains(text, word) {
				return &Guess{Kind: k.Word, User: k.Guess.User, Labels: []string{k.Word}}, word
			}
		}
	}
	return nil, ""
}
