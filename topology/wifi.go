package topology

import (
	"fmt"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/lists"
)

// Wifi makes the real interface at a link's end wireless. At a switch or router it is an access
// point, whose stations, managed by anybody or nobody, are behind that port; at a host it is a
// station of the network with that name, wherever its access points are.
type Wifi struct {
	SSID string `json:"ssid"`

	// Channel and Band are those of an access point; unset: 6 of 2.4GHz, 36 of 5GHz. A station
	// looks for its network on these only; unset: on all.
	Channel int      `json:"channel,omitempty"`
	Band    WifiBand `json:"band,omitempty"`

	// Key is the passphrase of WPA2-PSK (IEEE 802.11i); unset: the network is open. It is a secret:
	// WithoutKeys removes it from what is shown.
	Key     string `json:"key,omitempty"`
	KeyFile string `json:"key_file,omitempty"` // the file that the key comes from
}

// WifiBand is a range of frequencies.
type WifiBand string

const (
	Band2GHz WifiBand = "2.4GHz"
	Band5GHz WifiBand = "5GHz"
)

// channels returns the channels of 20 MHz in a band (IEEE 802.11-2020, annex E). Which of them are
// allowed depends on the country, which the machine knows.
func (b WifiBand) channels() (out []int) {
	from, to, step := 1, 13, 1
	if b == Band5GHz {
		from, to, step = 36, 64, 4
	}
	for c := from; c <= to; c += step {
		out = append(out, c)
	}
	if b == Band5GHz {
		for c := 100; c <= 144; c += 4 {
			out = append(out, c)
		}
		for c := 149; c <= 177; c += 4 {
			out = append(out, c)
		}
	}
	return out
}

// AccessPoint says whether a wireless link is an access point; otherwise its node, the only one, is
// a station.
func (l *Link) AccessPoint(node *Node) bool { return l.Wifi != nil && node.Kind != Host }

// WifiEnds returns the end of a wireless link that is at a node, and the real interface; false if
// the link is not wireless.
func (l *Link) WifiEnds() (node, device Endpoint, ok bool) {
	if l.Wifi == nil {
		return node, device, false
	}
	for i, e := range l.Ends {
		if e.External() && e.Carrier == nil && e.Network == "" {
			return l.Ends[1-i], e, true
		}
	}
	return node, device, false
}

// wifi assigns the bands and channels of access points, and the bands of stations' channels.
func (r *resolver) wifi() {
	for _, l := range r.t.Links {
		at, _, ok := l.WifiEnds()
		if ok && (l.AccessPoint(r.nodes[at.Node]) || l.Wifi.Channel != 0) {
			l.Wifi.settle()
		}
	}
}

// Frequencies returns those on which a station looks for its network, in MHz (IEEE 802.11-2020,
// annex E); none: all.
func (w *Wifi) Frequencies() []int {
	list := []int{w.Channel}
	switch {
	case w.Band == "":
		return nil
	case w.Channel == 0:
		list = w.Band.channels()
	}
	base := map[WifiBand]int{Band2GHz: 2407, Band5GHz: 5000}[w.Band]
	return lists.Map(list, func(c int) int { return base + 5*c })
}

// settle assigns the band and channel of an access point, or the band of a station's channel.
func (w *Wifi) settle() {
	if w.Band == "" {
		w.Band = Band2GHz
		if slices.Contains(Band5GHz.channels(), w.Channel) {
			w.Band = Band5GHz
		}
	}
	if w.Channel == 0 {
		w.Channel = map[WifiBand]int{Band2GHz: 6, Band5GHz: 36}[w.Band]
	}
}

// String describes the network without its key: "wifi lab, channel 6 (2.4GHz), WPA2".
func (w *Wifi) String() string {
	s := "wifi " + w.SSID
	if w.Channel != 0 {
		s += fmt.Sprintf(", channel %d", w.Channel)
	}
	if w.Band != "" {
		s += fmt.Sprintf(" (%s)", w.Band)
	}
	if w.Key == "" && w.KeyFile == "" {
		return s + ", open"
	}
	return s + ", WPA2"
}

// Placeholders for keys that are not shown, of a wireless network and of a protocol. They are no
// valid keys: one is too short, the other has a space.
const (
	hiddenKey         = "hidden"
	hiddenProtocolKey = "(hidden )"
)

// WithoutKeys returns the topology in a form that may be shown: keys of wireless networks and of
// protocols, and passwords and user data of virtual machines, are hidden.
func (t *Topology) WithoutKeys() *Topology {
	hasKey := func(l *Link) bool { return l.Wifi != nil && l.Wifi.Key != "" }
	secret := func(n *Node) bool { return n.Guest != nil && (n.Guest.Password != "" || n.Guest.UserData.Text != "") }
	if t == nil || !slices.ContainsFunc(t.Links, hasKey) && !slices.ContainsFunc(t.Nodes, secret) &&
		len(t.protocolKeys()) == 0 {
		return t
	}
	c := t.Clone()
	for _, key := range c.protocolKeys() {
		*key = hiddenProtocolKey
	}
	for _, l := range c.Links {
		if hasKey(l) {
			l.Wifi.Key = hiddenKey
		}
	}
	for _, n := range c.Nodes {
		if !secret(n) {
			continue
		}
		for _, s := range n.Guest.secrets() {
			if *s != "" {
				*s = hiddenKey
			}
		}
	}
	return c
}

// protocolKeys returns the keys of protocols, by where they are.
func (t *Topology) protocolKeys() map[string]*string {
	keys := map[string]*string{}
	add := func(where string, s Settings) {
		if s == nil {
			return
		}
		if p := protocolNamed(s.Protocol()); p != nil && p.Secrets != nil {
			for name, key := range p.Secrets(s) {
				keys[where+" "+p.Name+" "+name] = key
			}
		}
	}
	for _, n := range t.Nodes {
		for _, s := range n.Protocols {
			add("node "+n.Name, s)
		}
	}
	for i, key := range LinkKeys(t) {
		l := t.Links[i]
		for _, s := range l.Protocols {
			add("link "+key, s)
		}
		for _, e := range l.Ends {
			for _, s := range e.Protocols {
				add("end "+e.Label()+" of "+key, s)
			}
		}
	}
	return keys
}

// KeepKeys replaces keys, passwords and user data that WithoutKeys has hidden by those of the
// topology of. t may come from a stranger and contain anything: only these places are read.
func (t *Topology) KeepKeys(of *Topology) {
	t.keepSecrets(of)
	if !slices.Contains(t.Nodes, nil) && !slices.Contains(t.Links, nil) {
		var had map[string]*string
		for where, key := range t.protocolKeys() {
			if *key != hiddenProtocolKey {
				continue
			}
			if had == nil {
				had = of.protocolKeys()
			}
			if was := had[where]; was != nil {
				*key = *was
			}
		}
	}
	hidden := func(l *Link) bool { return l != nil && l.Wifi != nil && l.Wifi.Key == hiddenKey }
	if !slices.ContainsFunc(t.Links, hidden) || slices.Contains(t.Links, nil) {
		return
	}
	had := LinksByKey(of)
	for i, key := range LinkKeys(t) {
		w, was := t.Links[i].Wifi, had[key]
		if w != nil && w.Key == hiddenKey && was != nil && was.Wifi != nil {
			w.Key = was.Wifi.Key
		}
	}
}

func (t *Topology) keepSecrets(of *Topology) {
	hidden := func(n *Node) bool {
		return n != nil && n.Guest != nil && (n.Guest.Password == hiddenKey || n.Guest.UserData.Text == hiddenKey)
	}
	if !slices.ContainsFunc(t.Nodes, hidden) {
		return
	}
	had := byName(of)
	for _, n := range t.Nodes {
		if !hidden(n) {
			continue
		}
		was := had[n.Name]
		if was == nil || was.Guest == nil {
			continue
		}
		kept := was.Guest.secrets()
		for i, s := range n.Guest.secrets() {
			if *s == hiddenKey {
				*s = *kept[i]
			}
		}
	}
}

// secrets returns the settings of a virtual machine that are not shown.
func (g *Guest) secrets() [2]*string { return [2]*string{&g.Password, &g.UserData.Text} }

// ReadKeys replaces keys that are in files of their own by the files' first lines; read reads a
// file. It is called once the topology has been resolved, for a lab that is about to come up.
func (t *Topology) ReadKeys(read func(file string) ([]byte, error)) error {
	var problems Problems
	for _, l := range t.Links {
		if l.Wifi == nil || l.Wifi.KeyFile == "" {
			continue
		}
		text, err := read(l.Wifi.KeyFile)
		if err != nil {
			problems.Add(l.Pos, "write the passphrase into it, readable by you alone", "link %s: wifi: key_file: %s",
				l.Name(), err)
			continue
		}
		w := *l.Wifi // links of a range share it
		first, _, _ := strings.Cut(string(text), "\n")
		w.Key = strings.TrimSuffix(first, "\r")
		if l.Wifi = &w; !isPassphrase(w.Key) {
			problems.Add(l.Pos, passphraseHint,
				"link %s: wifi: the first line of %s, which key_file names, cannot be a key of WPA2", l.Name(),
				w.KeyFile)
		}
	}
	return problems.Err()
}

const passphraseHint = "a passphrase has 8 to 63 characters of ASCII"

// isPassphrase says whether a passphrase is valid for WPA2 (IEEE 802.11-2020, annex J.4.1).
func isPassphrase(key string) bool {
	return len(key) >= 8 && len(key) <= 63 &&
		!strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' })
}

func (v *validator) wifi(l *Link, bad func(hint, format string, args ...any)) {
	w := l.Wifi
	if w == nil {
		return
	}
	node, _, ok := l.WifiEnds()
	n := v.nodes[node.Node]
	switch {
	case !ok:
		bad("write s1 -- interface:wlan0: {wifi: {ssid: lab}}", "wifi is for links to an interface of the machine")
		return
	case n == nil:
		return // reported already
	}
	v.wifiChannel(w, bad)
	if w.SSID == "" || len(w.SSID) > 32 {
		bad("give it a name of 1 to 32 bytes", "wifi: %q cannot be the name of a network (ssid)", clip(w.SSID))
	}
	switch {
	case w.Key != "" && !isPassphrase(w.Key):
		bad(passphraseHint, "wifi: the key cannot be one of WPA2")
	case hasNUL(w.KeyFile):
		bad("remove it", "wifi: the name of the key_file holds a NUL character")
	}
}

func (v *validator) wifiChannel(w *Wifi, bad func(hint, format string, args ...any)) {
	if w.Band != "" && w.Band != Band2GHz && w.Band != Band5GHz {
		bad("choose 2.4GHz or 5GHz", "wifi: there is no band %q", clip(string(w.Band)))
		return
	}
	if w.Channel == 0 {
		return
	}
	in := slices.Contains(Band2GHz.channels(), w.Channel)
	if in5 := slices.Contains(Band5GHz.channels(), w.Channel); w.Band == Band5GHz || w.Band == "" && in5 {
		in = in5
	}
	if !in {
		bad("2.4GHz has 1 to 13; 5GHz has 36, 40, … 64, 100, … 144, 149, … 177", "wifi: %d is not a channel of %s",
			w.Channel, orAny(w.Band))
	}
}

func orAny(b WifiBand) string {
	if b == "" {
		return "any band"
	}
	return string(b)
}
