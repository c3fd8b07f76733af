package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// modelJSON is what the API says of a node that stands for a slow device.
type modelJSON struct {
	Node  string
	Model struct {
		Name, Source string
		PerPacket    string `json:"per_packet"`
	}
	Device struct {
		Served, Overflowed, Waiting struct{ Packets, Bytes uint64 }
		Busy                        time.Duration `json:"busy_ns"`
	}
}

func (m *machine) models() (out []modelJSON) {
	m.t.Helper()
	must(m.t, json.Unmarshal([]byte(m.sh("curl -s --unix-socket /run/trivet/"+m.name+"/daemon.sock http://lab/v1/models")), &out))
	return out
}

// pour makes a host send about 500 UDP packets a second with so many bytes of data to an address,
// until the test ends, whatever becomes of its device meanwhile.
func (m *machine) pour(host, address string, size int) (stop func()) {
	m.t.Helper()
	cmd := m.command("nsenter", "--net=/run/trivet/"+m.name+"/ns/net/"+host, "python3", "-c", fmt.Sprintf(`
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    for _ in range(5):
        try: s.sendto(bytes(%d), (%q, 9))
        except OSError: pass
    time.sleep(0.01)
`, size, address))
	m.startOutput(cmd)
	return func() { _ = cmd.Process.Kill() }
}

// served is at what share of what it can do the only modelled device of a lab works, while more
// comes than that: what has passed it, in its own counts, by how long that takes. It also checks
// that the hosts are handed what the device has served, and no more.
func (m *machine) served(what string, perPacket time.Duration, to ...string) {
	m.t.Helper()
	out := func() (n uint64) {
		for _, host := range to {
			n += m.direction("s1", host).Sent.Packets
		}
		return n
	}
	var share float64
	eventually(m.t, what+": the device works all the time, and drops", func() bool {
		// Beyond what it can do nothing is counted, however long reading takes: the time between
		// the outer readings is at least that between the counts, and what was overdue at the
		// first, as the daemon had waited for a processor, is at most one queue.
		begin := time.Now()
		first, handed := m.models()[0].Device, out()
		inner := time.Now()
		time.Sleep(3 * time.Second)
		within := time.Since(inner)
		last, now := m.models()[0].Device, out()
		outer := time.Since(begin)
		n := last.Served.Packets - first.Served.Packets
		if most := float64(outer)/float64(perPacket) + 22; float64(n) > most {
			m.t.Fatalf("%s: %d packets were served in %v, of %v each", what, n, outer, perPacket)
		}
		if most := float64(outer)/float64(perPacket) + 30; float64(now-handed) > most {
			m.t.Fatalf("%s: hosts were handed %d packets in %v by a device that takes %v for each", what, now-handed,
				outer, perPacket)
		}
		share = float64(n) * float64(perPacket) / float64(within)
		return share > 0.95 && float64(now-handed)*float64(perPacket) > 0.9*float64(within) &&
			last.Overflowed.Packets > first.Overflowed.Packets
	})
}

// TestModels proves, on each datapath, that a node that stands for a slow device forwards at its
// rate what comes faster: as many packets a second whether they are small or large where a byte
// costs nothing, and as many in all where both directions are full; at another rate, with bytes
// that cost, once the file says so and is applied; so also after resume; at the datapath's own
// speed once the model is gone; and that down leaves nothing.
func TestModels(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs", "bridge", "kernel"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			file := func(model string) string {
				kind := "s1: {switch: {" + model + "}}"
				if datapath == "kernel" {
					kind = "s1: {router: {datapath: kernel, " + model + "}}"
				}
				text := "controller: none\ndatapath: " + datapath + "\nmodels: {slow: {per_packet: 5ms, queue: 20, ports: 100mbit, source: a test}}\n"
				return m.file("models.yaml", strings.Replace(text, "datapath: kernel\n", "",
					1)+"nodes:\n  h[1-2]: host\n  "+kind+"\nlinks: [h1 -- s1, s1 -- h2]\n")
			}
			m.up(file("model: slow"))
			contains(t, m.ok("inspect"), "model slow", "100mbit")
			m.ok("ping", "h1", "h2", "-c", "1", "--timeout", "30s")
			h1, h2 := strings.Fields(m.exec("h1", "hostname -I"))[0], strings.Fields(m.exec("h2", "hostname -I"))[0]

			stop := m.pour("h1", h2, 22)
			m.served("64 bytes", 5*time.Millisecond, "h2")
			stop()
			stop = m.pour("h1", h2, 1358)
			m.served("1,400 bytes", 5*time.Millisecond, "h2")
			back := m.pour("h2", h1, 1358)
			m.served("both ways", 5*time.Millisecond, "h1", "h2")

			m.ok("apply", file("model: {per_packet: 3ms, per_byte: 5us, queue: 20, source: a test}")) // 10 ms of 1,400 bytes
			m.served("changed", 10*time.Millisecond, "h1", "h2")
			m.killDaemon()
			m.ok("resume")
			m.served("resumed", 10*time.Millisecond, "h1", "h2")
			stop()
			back()
			m.ok("apply", file("place: [1, 2]"))
			if left := m.models(); len(left) != 0 {
				t.Errorf("models are left: %+v", left)
			}
			m.pingAll(2)
			m.killDaemon()
			m.ok("down")
			m.unchanged(before)
		})
	}
}

// TestSlowDevices proves of examples/slow-devices.yaml that it comes up, that its hosts reach each
// other through its devices, and that each of these has served packets.
func TestSlowDevices(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	m.up(example("slow-devices.yaml"))
	m.ok("ping", "--all", "--timeout", "30s")
	contains(t, m.ok("inspect"), "small-router")
	models := m.models()
	if len(models) != 3 {
		t.Fatalf("3 nodes have models, not %+v", models)
	}
	for _, d := range models {
		if d.Model.Source == "" || d.Device.Served.Packets == 0 || d.Device.Busy == 0 {
			t.Errorf("it has served nothing, or does not say where its values are from: %+v", d)
		}
	}
	m.ok("down")
	m.unchanged(before)
}
