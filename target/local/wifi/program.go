package wifi

import (
	"crypto/pbkdf2"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/topology"
)

// Program is what runs at a wireless interface.
type Program struct {
	Name    string // "hostapd"
	Package string // of Debian and Ubuntu
	Type    uint32 // mode of the interface while it runs
	is      string // that mode, in words

	arguments func(device, config string) []string
	config    func(w *topology.Wifi, device, control string) string
}

var (
	hostapd = &Program{
		Name: "hostapd", Package: "hostapd", Type: unix.NL80211_IFTYPE_AP, is: "access point",
		arguments: func(_, config string) []string { return []string{config} },
		config:    accessPoint,
	}
	supplicant = &Program{
		Name: "wpa_supplicant", Package: "wpasupplicant", Type: unix.NL80211_IFTYPE_STATION, is: "station",
		arguments: func(device, config string) []string {
			return []string{"-D", "nl80211", "-i", device, "-c", config}
		},
		config: station,
	}
)

// Programs returns all of them.
func Programs() []*Program { return []*Program{hostapd, supplicant} }

// Of returns the program for the interface of a wireless link, or nil if the link is not wireless.
func Of(l *topology.Link, node *topology.Node) *Program {
	switch {
	case l.Wifi == nil:
		return nil
	case l.AccessPoint(node):
		return hostapd
	}
	return supplicant
}

// Path returns where the program is.
func (p *Program) Path() (string, error) {
	for _, name := range []string{p.Name, "/usr/sbin/" + p.Name, "/sbin/" + p.Name} {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.EvalSymlinks(path)
		}
	}
	return "", lack.New(p.Name+" is not installed, which makes an interface a Wi-Fi "+p.is, ": ",
		"apt install "+p.Package)
}

// Arguments returns the program's arguments for an interface and the file with the content of
// Config.
func (p *Program) Arguments(device, config string) []string { return p.arguments(device, config) }

// Config returns the program's configuration file. control is the directory for its socket.
func (p *Program) Config(w *topology.Wifi, device, control string) string {
	return p.config(w, device, control)
}

// Names of networks and keys are written in hexadecimal digits, so that nothing in them can be
// taken for something else.

func accessPoint(w *topology.Wifi, device, control string) string {
	mode := map[topology.WifiBand]string{topology.Band2GHz: "g", topology.Band5GHz: "a"}[w.Band]
	text := fmt.Sprintf(`interface=%s
driver=nl80211
ctrl_interface=%s
ssid2=%x
hw_mode=%s
channel=%d
ieee80211n=1
wmm_enabled=1
`, device, control, w.SSID, mode, w.Channel)
	if w.Key == "" {
		return text
	}
	return text + `wpa=2
wpa_key_mgmt=WPA-PSK
rsn_pairwise=CCMP
wpa_psk=` + psk(w) + "\n"
}

func station(w *topology.Wifi, _, control string) string {
	auth := []string{"key_mgmt=NONE"}
	if w.Key != "" {
		auth = []string{"key_mgmt=WPA-PSK", "proto=RSN", "psk=" + psk(w)}
	}
	if list := strings.Trim(fmt.Sprint(w.Frequencies()), "[]"); list != "" {
		auth = append(auth, "scan_freq="+list, "freq_list="+list)
	}
	return fmt.Sprintf("ctrl_interface=%s\nupdate_config=0\nnetwork={\n\tssid=%x\n\tscan_ssid=1\n\t%s\n}\n", control,
		w.SSID, strings.Join(auth, "\n\t"))
}

// psk returns the key that WPA2 derives from a passphrase (IEEE 802.11-2020, annex J.4.1).
func psk(w *topology.Wifi) string {
	key, err := pbkdf2.Key(sha1.New, w.Key, []byte(w.SSID), 4096, 32)
	if err != nil {
		panic(err) // only for lengths that FIPS 140 does not allow
	}
	return hex.EncodeToString(key)
}
