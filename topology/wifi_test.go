package topology_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/mininet"
	"trivet.dev/trivet/topology/formats/trivet"
)

func wifiFile(t *testing.T, text string) *topology.Topology {
	t.Helper()
	top, problems := trivet.Read("lab.yaml", []byte("nodes: {s1: switch, s2: switch, h1: host, w1: host, r1: router, r2: router}\nlinks:\n"+text))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return top
}

// TestWifiResolved proves what is filled in of wireless links: band and channel of access points
// from each other, nothing of stations; that a station is in the subnet of its access point, by the
// name of the network; and that the result can be written and read again.
func TestWifiResolved(t *testing.T) {
	top := wifiFile(t, `
  - s1 -- r1
  - s2 -- r1
  - s2 -- r2
  - s1 -- interface:wlan0: {wifi: {ssid: lab, key: correct horse}}
  - s2 -- interface:wlan1: {wifi: {ssid: other, channel: 44}}
  - s2 -- interface:wlan2: {wifi: {ssid: third, band: 5GHz, key_file: secret}}
  - w1 -- interface:wlan3: {wifi: {ssid: lab, key: correct horse}}
  - h1 -- interface:wlan4: {wifi: {ssid: other}}
`)
	r, problems := topology.Resolve(top, topology.Defaults{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]string{
		3: "wifi lab, channel 6 (2.4GHz), WPA2", 4: "wifi other, channel 44 (5GHz), open", 5: "wifi third, channel 36 (5GHz), WPA2",
		6: "wifi lab, WPA2", 7: "wifi other, open",
	} {
		if got := r.Links[i].Wifi.String(); got != want {
			t.Errorf("%s: %s, not %s", r.Links[i].Name(), got, want)
		}
	}
	for host, router := range map[int]int{6: 0, 7: 1} {
		a, b := r.Links[host].Ends[0].Addresses[0], r.Links[router].Ends[1].Addresses[0]
		if a.Masked() != b.Masked() {
			t.Errorf("%s is in %s, its router in %s", r.Links[host].Ends[0].Node, a.Masked(), b.Masked())
		}
	}
	data, _, err := trivet.Write(r)
	if err != nil {
		t.Fatal(err)
	}
	back, problems := trivet.Read("", data)
	if err := problems.Err(); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	for i, l := range back.Links {
		if w := r.Links[i].Wifi; (w == nil) != (l.Wifi == nil) || w != nil && *w != *l.Wifi {
			t.Errorf("%s became\n%s", l.Name(), data)
		}
	}
	if err := topology.Validate(r).Err(); err != nil {
		t.Error("what was resolved is not valid:", err)
	}
}

// TestWifiWrong proves that what cannot be a wireless link is said, with a hint.
func TestWifiWrong(t *testing.T) {
	for link, want := range map[string]string{
		"s1 -- h1: {wifi: {ssid: lab}}":                                             "wifi is for links to an interface of the machine",
		"s1 -- interface:wlan0: {wifi: {channel: 6}}":                               "cannot be the name of a network",
		"s1 -- interface:wlan0: {wifi: {ssid: " + strings.Repeat("x", 33) + "}}":    "cannot be the name of a network",
		"s1 -- interface:wlan0: {wifi: {ssid: lab, key: short}}":                    "cannot be one of WPA2",
		"s1 -- interface:wlan0: {wifi: {ssid: lab, key: \"tab\\tinside it\"}}":      "cannot be one of WPA2",
		"s1 -- interface:wlan0: {wifi: {ssid: lab, channel: 15}}":                   "15 is not a channel of any band",
		"s1 -- interface:wlan0: {wifi: {ssid: lab, channel: 36, band: 2.4GHz}}":     "36 is not a channel of 2.4GHz",
		"s1 -- interface:wlan0: {wifi: {ssid: lab, band: 6GHz}}":                    "6GHz",
		"s1 -- interface:wlan0: {wifi: {ssid: lab, key: long enough, key_file: f}}": "there is a key and a key_file",
		"w1 -- interface:wlan0: {wifi: {ssid: lab, channel: 0}}":                    "not a whole number",
	} {
		top, problems := trivet.Read("lab.yaml", []byte("nodes: {s1: switch, h1: host, w1: host}\nlinks: [{"+link+"}]\n"))
		if problems.Err() == nil {
			problems = topology.Validate(top)
		}
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n  %v\n  does not say %q", link, err, want)
		} else if strings.Contains(err.Error(), "short") || strings.Contains(err.Error(), "inside") {
			t.Errorf("%s: the key is shown: %v", link, err)
		}
	}
}

// TestProtocolKeys proves that OSPF's keys, of routers, links, ends and virtual links, are hidden
// where a topology is shown, come back where what was shown is applied, and that what stands for
// one is refused where there was none.
func TestProtocolKeys(t *testing.T) {
	auth := func(key string) *topology.OSPFAuth { return &topology.OSPFAuth{Type: topology.AuthMD5, Key: key} }
	top := wifiFile(t, "  - s1 -- s2\n")
	r1, l := top.Nodes[0], top.Links[0]
	r1.Protocols.Set(&topology.OSPF{Auth: auth("secret-1"), VirtualLinks: []topology.OSPFVirtualLink{
		{Area: 1, Router: "s2", Auth: auth("secret-2")}, {Area: 2, Router: "s2", Auth: auth("secret-3")}}})
	l.Protocols.Set(&topology.OSPFLink{Auth: auth("secret-4")})
	l.Ends[0].Protocols.Set(&topology.OSPFLink{Auth: auth("secret-5")})
	l.Ends[1].Protocols.Set(&topology.OSPFLink{Auth: auth("secret-6")})
	text, err := json.Marshal(top.WithoutKeys())
	if err != nil || strings.Contains(string(text), "secret") || strings.Count(string(text), "hidden") != 6 {
		t.Errorf("shown: %s, %v", text, err)
	}
	if !strings.Contains(r1.OSPF().Auth.Key, "secret") {
		t.Error("the lab's own key is lost")
	}
	var shown topology.Topology
	if err := json.Unmarshal(text, &shown); err != nil {
		t.Fatal(err)
	}
	none := shown.Clone()
	if shown.KeepKeys(top); !topology.Equal(&shown, top) {
		t.Error("keys do not come back: ", topology.Diff(&shown, top))
	}
	none.KeepKeys(&topology.Topology{})
	if err := topology.Validate(none).Err(); err == nil || !strings.Contains(err.Error(), "a key has no spaces") {
		t.Error("what stands for a key is one: ", err)
	}
}

// TestWifiKeys proves that keys are hidden where a topology is shown, come back where what was
// shown is applied, are not told where topologies are compared, and are read from files without
// ever being written into the topology's own.
func TestWifiKeys(t *testing.T) {
	const key = "correct horse"
	top := wifiFile(t, "  - s1 -- interface:wlan0: {wifi: {ssid: lab, key: correct horse}}\n  - s2 -- interface:wlan1: {wifi: {ssid: lab, key_file: secret}}\n")
	top.DirsFrom("/here")
	if err := top.ReadKeys(func(file string) ([]byte, error) {
		if file != "/here/secret" {
			return nil, errors.New("no such file " + file)
		}
		return []byte("battery staple\nmore"), nil
	}); err != nil {
		t.Fatal(err)
	}
	if top.Links[1].Wifi.Key != "battery staple" {
		t.Error("the key in the file was not read")
	}
	shown := top.WithoutKeys()
	for _, l := range shown.Links {
		if strings.Contains(l.Wifi.Key, "horse") || strings.Contains(l.Wifi.Key, "staple") {
			t.Error("a key is shown:", l.Wifi.Key)
		}
	}
	if err := topology.Validate(shown).Err(); err == nil {
		t.Error("what stands for a key is one")
	}
	if shown.KeepKeys(top); !topology.Equal(shown, top) {
		t.Error("keys do not come back:", topology.Diff(shown, top))
	}
	other := top.Clone()
	other.Links[0].Wifi.Key = "another key"
	changes := topology.Diff(top, other)
	if len(changes) != 1 || strings.Contains(changes[0].String(), key) || strings.Contains(changes[0].String(), "another key ") {
		t.Error("how a change of a key is told:", changes)
	}
	data, _, err := trivet.Write(top)
	if err != nil || strings.Contains(string(data), "staple") || !strings.Contains(string(data), "key_file: /here/secret") {
		t.Errorf("%v\n%s", err, data)
	}
	if err := top.ReadKeys(func(string) ([]byte, error) { return []byte("short\n"), nil }); err == nil || strings.Contains(err.Error(), "short") {
		t.Error("a file without a key:", err)
	}
	_, losses, err := mininet.Write(wifiFile(t, "  - s1 -- interface:wlan0: {wifi: {ssid: lab, key: correct horse}}\n"))
	told := ""
	for _, l := range losses {
		told += l.Field + " " + l.Value + "\n"
	}
	if err != nil || !strings.Contains(told, "wifi.ssid lab") || strings.Contains(told, key) {
		t.Errorf("what Mininet cannot hold: %v\n%s", err, told)
	}
}
