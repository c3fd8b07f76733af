package discover

import (
	"slices"
	"strings"
)

// Guess is what a device may be.
type Guess struct {
	Name   string   `json:"name"`
	Kind   string   `json:"kind,omitempty"` // pi, jetson, openwrt; empty: nothing tells
	User   string   `json:"user"`           // that its vendor's image has
	Labels []string `json:"labels,omitempty"`
	Why    string   `json:"why"`
}

// vendors are those of devices that racks are made of, by the first three bytes of their MACs (IEEE
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

// guess says what a device is, by its vendor, its SSH server and its name, in this order: the
// latter two can be anything.
func guess(d *Device) Guess {
	banner, host := strings.ToLower(d.Banner), strings.ToLower(d.Host)
	has := func(s string, words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
	}
	pi := Guess{Kind: "pi", User: "pi", Labels: []string{"pi"}}
	jetson := Guess{Kind: "jetson", User: "nvidia", Labels: []string{"jetson", "gpu"}}
	wrt := Guess{Kind: "openwrt", User: "root", Labels: []string{"openwrt"}}
	because := func(g Guess, why string) Guess {
		g.Why = why
		return g
	}
	switch {
	case has(banner, "dropbear") && d.Vendor == "":
		return because(wrt, "its SSH server is dropbear")
	case d.Vendor == raspberry:
		return because(pi, "its MAC is one of Raspberry Pi's")
	case d.Vendor == nvidia:
		return because(jetson, "its MAC is one of NVIDIA's")
	case has(banner, "raspbian", "rpt"): // Raspberry Pi OS: Debian-5+rpt1
		return because(pi, "its SSH server is Raspberry Pi OS's")
	case has(host, "openwrt"):
		return because(wrt, "it is called so")
	case has(host, "raspberrypi"):
		return because(pi, "it is called so")
	case has(host, "jetson", "nvidia", "tegra", "orin", "xavier"):
		return because(jetson, "it is called so")
	case d.Banner == "":
		return Guess{User: "root", Why: "no SSH server answers"}
	}
	return Guess{User: "root", Why: "nothing tells what it is"}
}
