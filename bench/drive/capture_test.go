package drive

import (
	"bytes"
	"context"
	"io"
	"os"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// TestKeep proves that of a recording as many packets are kept, and as much of each, as is asked
// for, that all are counted, and that one which ends in the middle of a packet is whole.
func TestKeep(t *testing.T) {
	var in bytes.Buffer
	w := pcapgo.NewWriterNanos(&in)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(w.WriteFileHeader(262144, layers.LinkTypeEthernet))
	at := time.Unix(1_700_000_000, 123_456_789)
	for size := 60; size < 70; size++ {
		must(w.WritePacket(gopacket.CaptureInfo{Timestamp: at, CaptureLength: size, Length: size}, bytes.Repeat([]byte{byte(size)}, size)))
	}
	for name, c := range map[string]struct {
		cut, bytes, most int
		want             recorded
	}{
		"all":             {0, 262144, 100, recorded{10, 10, 645}},
		"some":            {0, 262144, 4, recorded{10, 4, 645}},
		"parts":           {0, 62, 100, recorded{10, 10, 645}},
		"an end too soon": {5, 262144, 100, recorded{9, 9, 576}},
	} {
		var out bytes.Buffer
		got, err := keep(bytes.NewReader(in.Bytes()[:in.Len()-c.cut]), &out, c.bytes, c.most, func() {})
		if err != nil || got != c.want {
			t.Errorf("%s: %+v (%v), want %+v", name, got, err, c.want)
		}
		r, err := pcapgo.NewReader(&out)
		must(err)
		for n := 0; ; n++ {
			data, info, err := r.ReadPacketData()
			if err == io.EOF {
				if n != c.want.kept {
					t.Errorf("%s: the file has %d packets, want %d", name, n, c.want.kept)
				}
				break
			}
			must(err)
			if len(data) != min(60+n, c.bytes) || info.Length != 60+n || !info.Timestamp.Equal(at) {
				t.Errorf("%s: packet %d has %d bytes of %d, of %s", name, n, len(data), info.Length, info.Timestamp)
			}
		}
	}
	if _, err := keep(bytes.NewReader(nil), io.Discard, 100, 100, func() {}); err == nil {
		t.Error("a recording of nothing is taken")
	}
}

// Proves that recordings of one place that begin together have a file each, and that of one which
// is interrupted nothing stays.
func TestCaptures(t *testing.T) {
	i, probes := bring(t, `
topology: "single,2"
probes: [{capture: {at: h1, time: 500ms}}]
`)
	dir := i.(*instance).driver.Captures
	files := func() int {
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Error(err)
		}
		return len(list)
	}
	b := bed{captures: dir}
	for range 20 {
		f, err := b.captureFile("h1")
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	run(t, i, probes["capture"])
	if n := files(); n != 21 {
		t.Errorf("%d files, want 21", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := i.Run(ctx, probes["capture"], time.Now(), func() {}); err == nil {
		t.Error("an interrupted recording is a result")
	}
	if n := files(); n != 21 {
		t.Errorf("%d files after one was interrupted, want 21", n)
	}
}
