package controller

import (
	"net"
	"testing"
)

// Proves that the window holds what was in its last 30 seconds, whatever gaps there are, and that
// what there was in all is not forgotten.
func TestMeter(t *testing.T) {
	var m meter
	recent := func(now int64, want uint64) {
		t.Helper()
		if got := m.read(now); got.Recent != want {
			t.Errorf("second %d: %+v, want %d", now, got, want)
		}
	}
	for now := range int64(100) {
		m.add(1, 2, now)
	}
	recent(99, 90)
	recent(100, 87)
	recent(128, 3)
	recent(129, 0)
	m.add(5, 0, 1_000_000)
	recent(1_000_029, 5)
	recent(1_000_030, 0)
	m.add(7, 0, 1_000_050)
	m.add(1, 0, 1_000_049) // another thread looked at the clock before
	recent(1_000_050, 8)
	if all := m.read(1_000_050); all.Received != 113 || all.Sent != 200 {
		t.Errorf("%+v", all)
	}
}

// What counting costs, beside what it is done once for: a read of the kernel's.
func BenchmarkMeter(b *testing.B) {
	for _, counted := range []bool{false, true} {
		b.Run(map[bool]string{false: "read", true: "read and counted"}[counted], func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			go func() {
				if c, err := l.Accept(); err == nil {
					for err == nil {
						_, err = c.Write(make([]byte, 64<<10))
					}
				}
			}()
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			read, buf := conn.Read, make([]byte, 128)
			if counted {
				read = metered{conn, new(meter)}.Read
			}
			for b.Loop() {
				if _, err := read(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("counting alone", func(b *testing.B) {
		var m meter
		for b.Loop() {
			m.add(1, 0, second())
		}
	})
}
