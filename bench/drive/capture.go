package drive

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

func init() {
	at := experiment.Option{Name: "at", Type: experiment.Text, Required: true, Example: "h1",
		Doc: "What is recorded: a link (A-B), or a node with all its links."}
	register(kind{ProbeKind: experiment.ProbeKind{
		Name: "capture", Doc: "Records packets while probes of its group run, to a file beside the results.",
		Options: []experiment.Option{at,
			{Name: "time", Type: experiment.Time, Default: "10s", Doc: "How long it records."},
			{Name: "bytes", Type: experiment.Whole, Default: "128", Least: 14, Most: 262144,
				Doc: "How much is kept of a packet."},
			{Name: "packets", Type: experiment.Whole, Default: "100000", Least: 1, Most: 10_000_000,
				Doc: "How many packets are kept; further ones are counted."},
		},
		Estimate: func(o experiment.Options, _ experiment.Lab) time.Duration { return o.Time("time") },
		Metrics: []experiment.Metric{metric("captured", "packets", "at"), metric("captured_bytes", "B", "at"),
			metric("not_kept", "packets", "at")},
		Looks: true,
	}, order: 140, run: capture, own: true,
		fits: func(t *topology.Topology, o experiment.Options) error { return lab.CheckCapture(t, o.Text("at")) }})
}

// capture records packets to a file, whose name is in the details, and counts them. Of one that is
// interrupted no file stays: no result would name it.
func capture(ctx context.Context, b *bed) (o experiment.Measured, err error) {
	at := b.options.Text("at")
	f, err := b.captureFile(at)
	if err != nil {
		return o, err
	}
	path := f.Name()
	limited, stop := context.WithCancel(ctx)
	defer stop()
	in, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := b.lab.Capture(limited, at, out)
		out.CloseWithError(errors.Join(err, io.EOF))
		ended <- err
	}()
	file := bufio.NewWriter(f)
	seen, err := keep(in, file, b.options.Int("bytes"), b.options.Int("packets"), func() {
		b.looking()
		time.AfterFunc(b.options.Time("time"), stop)
	})
	in.Close()
	err = errors.Join(err, file.Flush())
	if err = errors.Join(<-ended, err, f.Close(), ctx.Err()); err != nil {
		return o, errors.Join(fmt.Errorf("capture at %s: %w", at, err), os.Remove(path))
	}
	labels := map[string]string{"at": at}
	for _, m := range []struct {
		name, unit string
		value      int
	}{{"captured", "packets", seen.kept}, {"captured_bytes", "B", seen.bytes},
		{"not_kept", "packets", seen.packets - seen.kept}} {
		o.Measurements = append(o.Measurements,
			result.Measurement{Metric: m.name, Unit: m.unit, Values: []float64{float64(m.value)}, Labels: labels})
	}
	o.Details, _ = json.Marshal(map[string]string{"file": filepath.Join(filepath.Base(filepath.Dir(path)),
		filepath.Base(path))})
	return o, nil
}

// captureFile makes the file for a capture of this probe: in a directory beside the results, called
// by time and place. Those that begin together at one place are numbered.
func (b *bed) captureFile(at string) (*os.File, error) {
	if b.captures == "" {
		return nil, errors.New("there is no directory for captures")
	}
	if err := os.MkdirAll(b.captures, 0o755); err != nil {
		return nil, err
	}
	name := time.Now().UTC().Format("20060102T150405.000Z") + "-" +
		regexp.MustCompile(`[^A-Za-z0-9=.]+`).ReplaceAllString(at, "-")
	path := filepath.Join(b.captures, name)
	f, err := os.OpenFile(path+".pcap", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	for n := 2; errors.Is(err, fs.ErrExist); n++ {
		f, err = os.OpenFile(fmt.Sprintf("%s-%d.pcap", path, n), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	}
	return f, err
}

// recorded is what a capture has seen.
type recorded struct{ packets, kept, bytes int }

// keep copies a capture: of each packet the first bytes, as many packets as are allowed. All are
// counted, with all their bytes. It calls begun when nothing is missed any more: the lab sends the
// header once it listens.
func keep(in io.Reader, out io.Writer, bytes, most int, begun func()) (seen recorded, err error) {
	r, err := pcapgo.NewReader(in)
	if errors.Is(err, io.EOF) {
		return seen, errors.New("nothing can be recorded there")
	}
	if err != nil {
		return seen, err
	}
	w := pcapgo.NewWriterNanos(out)
	if err := w.WriteFileHeader(uint32(bytes), r.LinkType()); err != nil {
		return seen, err
	}
	begun()
	for {
		data, info, err := r.ZeroCopyReadPacketData()
		// Time is over, perhaps in the middle of a packet.
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return seen, nil
		}
		if err != nil {
			return seen, err
		}
		seen.packets, seen.bytes = seen.packets+1, seen.bytes+info.Length
		if seen.kept == most {
			continue
		}
		seen.kept++
		data = data[:min(len(data), bytes)]
		info.CaptureLength = len(data)
		if err := w.WritePacket(info, data); err != nil {
			return seen, err
		}
	}
}
