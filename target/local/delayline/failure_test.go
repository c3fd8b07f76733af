package delayline

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"trivet.dev/trivet/topology"
)

// TestRefused proves that packets refused by a device because it is down are counted.
func TestRefused(t *testing.T) {
	w := newWire(t, topology.Impairment{}, Options{})
	c := w.echo(t, w.b.ip4)
	fastest(t, c, 64)
	w.b.mustRun("ip", "link", "set", testDevice, "down")
	roundTrip(t, c, 64, 200*time.Millisecond)
	s := w.line.Stats()
	for deadline := time.Now().Add(reply); s[0].Refused.Packets == 0; s = w.line.Stats() {
		if time.Now().After(deadline) {
			t.Fatalf("nothing was refused: %+v", s[0])
		}
		time.Sleep(10 * time.Millisecond)
	}
	balanced(t, s)
}

// TestDeviceDeleted proves that a line survives the deletion of an end's device: it reports that
// the device is gone, counts what it cannot deliver, and can still be changed and closed.
func TestDeviceDeleted(t *testing.T) {
	w := newWire(t, topology.Impairment{}, Options{})
	c := w.echo(t, w.b.ip4)
	fastest(t, c, 64)
	w.b.within(func() {
		link, err := netlink.LinkByName(testDevice)
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err != nil {
			t.Error(err)
		}
	})
	roundTrip(t, c, 64, 200*time.Millisecond)
	deadline := time.Now().Add(reply)
	for s := w.line.Stats(); !s[1].Gone || s[0].Refused.Packets == 0; s = w.line.Stats() {
		if time.Now().After(deadline) {
			t.Fatalf("not noticed: %+v", s)
		}
		time.Sleep(10 * time.Millisecond)
	}
	jitter := topology.Impairment{Jitter: ms(1)}
	if err := w.line.Set(jitter, jitter); err != nil {
		t.Error(err)
	}
	if _, err := w.line.Close(); err != nil {
		t.Error(err)
	}
	if w.line.Up(true) == nil || w.line.Set(jitter, jitter) == nil {
		t.Error("a closed line could be changed")
	}
}

// TestOverload proves that packets dropped for want of memory, or because the kernel's queue
// overflowed while nobody read it, are counted: as many as did not arrive.
func TestOverload(t *testing.T) {
	a, b := newSite(t, 1), newSite(t, 2)
	e, err := NewEngine(chunkSize)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	slow := topology.Impairment{Delay: ms(60_000)}
	line, err := e.Add(a.fd, b.fd, topology.Impairment{}, topology.Impairment{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{a: a, b: b, line: line}
	c := w.echo(t, b.ip4)
	fastest(t, c, 64)
	if err := line.Set(slow, topology.Impairment{}); err != nil {
		t.Fatal(err)
	}
	send := func(n int) {
		for range n {
			if _, err := c.Write(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
	}
	send(1000)
	deadline := time.Now().Add(reply)
	for s := line.Stats(); s[0].NoMemory.Packets < 700; s = line.Stats() {
		if time.Now().After(deadline) {
			t.Fatalf("no memory for %d packets, want at least 700: %+v", s[0].NoMemory.Packets, s[0])
		}
		time.Sleep(10 * time.Millisecond)
	}
	func() {
		line.worker.mu.Lock() // keeps the thread from reading
		defer line.worker.mu.Unlock()
		send(3 * txQueueLen)
	}()
	if s := line.Stats(); s[0].Overrun < txQueueLen {
		t.Errorf("%d overrun, want about %d: %+v", s[0].Overrun, 2*txQueueLen, s[0])
	}
}

// TestWrongDescriptors proves that anything but a suitable TAP device is refused with a reason.
func TestWrongDescriptors(t *testing.T) {
	e, err := NewEngine(0)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd := int(file.Fd())
	if _, err := e.Add(fd, fd, topology.Impairment{}, topology.Impairment{}, Options{}); err == nil || !strings.Contains(err.Error(), "not a TAP device") {
		t.Errorf("error %v", err)
	}
	if _, err := OpenTap("a-name-that-is-too-long", false); err == nil {
		t.Error("a name of 23 bytes was accepted")
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if e.Close() == nil {
		t.Error("an engine could be closed twice")
	}
}
