package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

const wifiKey = "correct horse"

// withRadios gives the machine four wireless interfaces made of software, wlan0 to wlan3, one of
// which it uses itself. The kernel makes them in its first network namespace, and they are on one
// air: so the test is alone on its machine.
func withRadios(t *testing.T) *machine {
	t.Helper()
	if out, err := exec.Command("modprobe", "mac80211_hwsim", "radios=4").CombinedOutput(); err != nil {
		if os.Getenv("TRIVET_FULL_KERNEL") == "1" {
			t.Fatalf("%v: %s", err, out)
		}
		t.Skip("this kernel has no mac80211_hwsim; make test-vm runs the test in one that has it")
	}
	m := sharedMachine(t)
	m.sh(`[ ! -e /sys/class/net/wlan4 ]; ip addr add 192.0.2.9/24 dev wlan2; ip link set wlan2 up`)
	return m
}

// radios is what iw(8) and ip(8) say of the wireless interfaces.
func (m *machine) radios() string {
	m.t.Helper()
	return m.sh(`iw dev | grep -v -e wdev -e txpower -e multicast; for i in 0 1 2 3; do ip addr show wlan$i; done | sed 's/ state .*//; s/<.*,UP.*>/<UP>/; s/<.*>/<>/'`)
}

// wpa asks the station at wlan2.
func (m *machine) wpa(command string) string {
	m.t.Helper()
	return m.sh("wpa_cli -p /run/trivet/" + m.name + "/wifi -i wlan2 " + command)
}

// roam makes the station at wlan2 go to the access point with an address, and waits until it is
// there.
func (m *machine) roam(to string) {
	m.t.Helper()
	m.wpa("scan freq=2437")
	eventually(m.t, "the station hears "+to, func() bool { return strings.Contains(m.wpa("scan_results"), to) })
	m.wpa("roam " + to)
	eventually(m.t, "the station is at "+to, func() bool {
		status := "\n" + m.wpa("status")
		return strings.Contains(status, "\nbssid="+to) && strings.Contains(status, "wpa_state=COMPLETED")
	})
}

// TestWifi proves that a real wireless interface becomes an access point of a switch and another a
// host's station: stations reach what is wired, also after they have gone over to another access
// point with the same name, at another switch; one with a wrong key is refused, which is told; keys
// are in no list of processes, in nothing that is shown and in no file that others can read; an
// access point that dies is missed and started again, also by another daemon; and the interfaces
// are what they were, whatever the lab's end: down, down without a daemon, an up that failed.
func TestWifi(t *testing.T) {
	m := withRadios(t)
	before, was := m.snapshot(), m.radios()
	same := func(when string) {
		t.Helper()
		if now := m.radios(); now != was {
			t.Fatalf("%s:\n%s", when, lineDiff(was, now))
		}
	}
	m.file("key", wifiKey+"\n")
	text := `nodes: {s1: switch, s2: switch, h1: host, w1: host, w2: host}
links:
  - s1 -- s2
  - s2 -- h1
  - s1 -- interface:wlan0: {wifi: {ssid: lab, channel: 6, key: ` + wifiKey + `}}
  - s2 -- interface:wlan1: {wifi: {ssid: lab, channel: 6, key_file: key}}
  - w1 -- interface:wlan2: {wifi: {ssid: lab, channel: 6, key_file: key}, to: {take: true}}
`
	const wrong = "  - w2 -- interface:wlan3: {wifi: {ssid: lab, channel: 6, key: battery staple}}\n"

	// The kernel allows no access point on this channel without a country.
	bad := m.want(1, "up", "--name", m.name, m.file("bad.yaml", strings.Replace(text, "channel: 6, key_file", "channel: 36, key_file", 1)))
	contains(t, bad.err, "link s2-wlan1: hostapd does not work", "nothing is left")
	same("after an up that failed")

	m.up(m.file("wifi.yaml", text+wrong))
	eventually(t, "the wrong key is told", func() bool { return strings.Contains(m.ok("logs"), "the access point of lab refuses the key of w2") })
	m.sh("! grep -s -a -l -e '" + wifiKey + "' -e 'battery staple' $(ls -d /proc/[0-9]*/cmdline)")
	for _, shown := range []string{m.ok("inspect", "--json"), m.ok("graph", "--json"), m.ok("inspect"), m.ok("logs")} {
		if strings.Contains(shown, wifiKey) || strings.Contains(shown, "battery") {
			t.Errorf("a key is shown: %s", shown)
		}
	}
	m.sh("! find /run/trivet -type f -perm /077 -exec grep -a -l -e '" + wifiKey + "' -e psk= {} + | grep .")

	// Without the link between the switches only the access point at s2 leads to h1.
	const one, two = "02:00:00:00:00:00", "02:00:00:00:01:00"
	m.roam(one)
	m.twice("w1", "10.0.0.1")
	m.roam(two)
	m.twice("w1", "10.0.0.1")
	m.ok("link", "set", "s1-s2", "down")
	m.twice("w1", "10.0.0.1")
	m.roam(one)
	m.want(1, "exec", "-n", "w1", "--", "ping", "-c", "2", "-W", "2", "10.0.0.1")
	m.ok("link", "set", "s1-s2", "up")
	m.twice("w1", "10.0.0.1")
	contains(t, m.ok("logs"), "link s1-wlan0: station 02:00:00:00:02:00 has joined", "link s2-wlan1: station 02:00:00:00:02:00 has joined")
	if r := jsonOf[struct {
		BitsPerSecond float64 `json:"bits_per_second"`
	}](m, "iperf", "w1", "h1", "-t", "3"); r.BitsPerSecond <= 0 {
		t.Errorf("iperf3 over the air: %+v", r)
	} else {
		t.Logf("iperf3 from a station through two switches: %.1f Mbit/s", r.BitsPerSecond/1e6)
	}

	pid := m.hostapd("wlan0")
	m.sh("kill -9 " + pid)
	eventually(t, "its end is told", func() bool { return strings.Contains(m.ok("ls"), "hostapd of link s1-wlan0") })
	m.ok("apply", m.file("wifi.yaml", text))
	contains(t, m.sh("iw dev wlan3 info | grep type; ip link show wlan3"), "type managed", "state DOWN")
	m.roam(one)
	m.twice("w1", "10.0.0.1")

	pid = m.hostapd("wlan0")
	m.killDaemon()
	m.ok("resume", m.name)
	if now := m.hostapd("wlan0"); now != pid {
		t.Errorf("hostapd was %s, is %s: resume has started another", pid, now)
	}
	m.twice("w1", "10.0.0.1")
	m.sh("kill -9 " + pid)
	eventually(t, "who has taken over misses it", func() bool { return strings.Contains(m.ok("ls"), "hostapd of link s1-wlan0") })
	m.killDaemon()
	contains(t, m.ok("down"), "nothing left")
	same("after down without a daemon")
	m.unchanged(before)
}

var wifiProcess = regexp.MustCompile(`^[0-9]+$`)

// hostapd is the process of the access point at an interface.
func (m *machine) hostapd(device string) string {
	m.t.Helper()
	pid := m.sh("pgrep -f '^[^ ]*hostapd .*/" + m.name + "/wifi/" + device + ".conf'")
	if !wifiProcess.MatchString(pid) {
		m.t.Fatal("not one hostapd: ", pid)
	}
	return pid
}
