package wifi

import (
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// TestPSK proves that keys are those of WPA2, by test vectors of IEEE 802.11-2020 (annex J.4.2).
func TestPSK(t *testing.T) {
	for _, c := range []struct{ key, ssid, psk string }{
		{"password", "IEEE", "f42c6fc52df0ebef9ebb4b90b38a5f902e83fe1b135a70e23aed762e9710a12e"},
		{"ThisIsAPassword", "ThisIsASSID", "0dc0d6eb90555ed6419756b9a15ec3e3209b63df707dd508d14581f8982721af"},
	} {
		if got := psk(&topology.Wifi{SSID: c.ssid, Key: c.key}); got != c.psk {
			t.Errorf("%s, %s: %s, not %s", c.key, c.ssid, got, c.psk)
		}
	}
}

// TestConfig proves that neither a network's name nor its key can become another line of what
// hostapd and wpa_supplicant read, that the passphrase itself is not in there, and that a network
// without a key is open.
func TestConfig(t *testing.T) {
	w := &topology.Wifi{SSID: "a\"\nbridge=br0", Key: "correct horse", Channel: 36, Band: topology.Band5GHz}
	for _, p := range Programs() {
		text := p.Config(w, "wlan0", "/run/x")
		if strings.Contains(text, "br0") || strings.Contains(text, w.Key) {
			t.Errorf("%s:\n%s", p.Name, text)
		}
		if !strings.Contains(text, "psk="+psk(w)+"\n") || !strings.Contains(text, "220a6272696467653d627230") {
			t.Errorf("%s has no key or name:\n%s", p.Name, text)
		}
		if open := p.Config(&topology.Wifi{SSID: "lab"}, "wlan0", "/run/x"); strings.Contains(open, "psk") || strings.Contains(open, "WPA-PSK") {
			t.Errorf("%s without a key:\n%s", p.Name, open)
		}
	}
	if text := supplicant.Config(w, "wlan0", "/run/x"); !strings.Contains(text, "\tscan_freq=5180\n\tfreq_list=5180\n") {
		t.Errorf("a station on channel 36:\n%s", text)
	}
	if text := hostapd.Config(w, "wlan0", "/run/x"); !strings.Contains(text, "hw_mode=a\nchannel=36\n") {
		t.Errorf("channel 36 of 5GHz:\n%s", text)
	}
}

// TestEvents proves that events are told from answers to commands, and that values are found in
// answers.
func TestEvents(t *testing.T) {
	for text, is := range map[string]bool{"<3>AP-ENABLED ": true, "OK\n": false, "": false, "state=ENABLED\n<3>x": false} {
		if isEvent(text) != is {
			t.Errorf("%q: an event: %v", text, !is)
		}
	}
	if v := Value("bssid=02:00:00:00:00:00\nwpa_state=COMPLETED\n", "wpa_state"); v != "COMPLETED" {
		t.Error(v)
	}
}
