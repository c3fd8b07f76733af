package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"trivet.dev/trivet/topology"
)

// A tap is one device to capture at, in the namespace of node.
type tap struct{ node, device string }

// CheckCapture says why nothing can be captured at a link or node of a topology.
func CheckCapture(t *topology.Topology, at string) error {
	_, _, err := taps(t, at)
	return err
}

// taps returns the devices of a link ("s1-h1", captured at the switch if there is
// one) or of a node (all of them), and the indexes of their links.
func taps(t *topology.Topology, what string) (out []tap, links []int, err error) {
	if t.Node(what) != nil {
		for i, l := range t.Links {
			for end, e := range l.Ends {
				if e.Node == what {
					out, links = append(out, tap{what, l.DeviceAt(end)}), append(links, i)
				}
			}
		}
		if len(out) == 0 {
			return nil, nil, fmt.Errorf("%s has no link", what)
		}
		return out, links, nil
	}
	for i, l := range t.Links {
		a, b, ok := cutLink(what, l)
		if !ok {
			continue
		}
		end := 0
		if n := t.Node(b); n != nil && n.IsDatapath() || t.Node(a) == nil {
			end = 1
		}
		return []tap{{l.Ends[end].Node, l.DeviceAt(end)}}, []int{i}, nil
	}
	return nil, nil, fmt.Errorf("there is no node or link %s%s", what, nearest(t, what))
}

// look makes packets visible on a link, or on all links of a node. out are the devices to capture
// at; packets on links without devices are passed to see until done is called. Links that need
// devices for this get them; done removes them once nobody captures there any more.
func (d *daemon) look(what string, see func([]byte)) (out []tap, done func(), err error) {
	var keys []string
	var ends []func()
	err = d.change(0, func(ctx context.Context) error {
		all, links, err := taps(d.target().Topology(), what)
		if err != nil {
			return err
		}
		names := topology.LinkKeys(d.target().Topology())
		for n, i := range links {
			if d.target().NeedsDevices(d.target().Topology().Links[i]) || d.watched[names[i]] > 0 {
				keys = append(keys, names[i])
				d.watched[names[i]]++
			}
			mirrored, end := d.target().Look(i, see)
			if ends = append(ends, end); !mirrored {
				out = append(out, all[n])
			}
		}
		return d.giveDevices(ctx)
	})
	return out, func() {
		for _, end := range ends {
			end()
		}
		d.changing.Lock()
		for _, k := range keys {
			d.watched[k]--
		}
		d.changing.Unlock()
		_ = d.change(0, d.giveDevices) // where the disk is full, the next capture or apply does it
	}, err
}

// giveDevices gives devices to the links that are being captured, and removes them from all others.
func (d *daemon) giveDevices(ctx context.Context) error {
	t := *d.target().Topology()
	t.Links = slices.Clone(t.Links)
	changed := false
	for i, key := range topology.LinkKeys(&t) {
		if want := d.watched[key] > 0; want != t.Links[i].Device {
			t.Links[i] = t.Links[i].Clone()
			t.Links[i].Device, changed = want, true
		}
	}
	if !changed {
		return nil
	}
	return d.target().Apply(ctx, &t, func(string, int, int) {})
}

// cutLink says whether "a-b" names this link, in either order, and returns the names of its ends in
// the link's order.
func cutLink(what string, l *topology.Link) (a, b string, ok bool) {
	a, b = l.Ends[0].Label(), l.Ends[1].Label()
	return a, b, what == a+"-"+b || what == b+"-"+a
}

// passCapture has the daemon of another site capture.
func (c *Client) passCapture(w http.ResponseWriter, r *http.Request) {
	resp, err := c.request(r.Context(), "GET", r.URL.RequestURI(), nil)
	if err != nil {
		writeProblem(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	flush, buf := http.NewResponseController(w), make([]byte, 64<<10)
	for err == nil {
		var n int
		n, err = resp.Body.Read(buf)
		if _, failed := w.Write(buf[:n]); failed != nil {
			return
		}
		_ = flush.Flush()
	}
}

func (d *daemon) serveCapture(w http.ResponseWriter, r *http.Request) {
	if d.isUp() == nil {
		if at, _, err := taps(d.target().Topology(), r.URL.Query().Get("at")); err == nil {
			if part := d.partOf(at[0].node); part != nil {
				part.passCapture(w, r)
				return
			}
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	packets := make(chan captured, 8192)
	taps, done, err := d.look(r.URL.Query().Get("at"), func(frame []byte) {
		info := gopacket.CaptureInfo{Timestamp: time.Now(), CaptureLength: len(frame), Length: len(frame)}
		select {
		case packets <- captured{info, bytes.Clone(frame)}:
		default: // the client cannot keep up; packets are not delayed for it
		}
	})
	if err != nil {
		done()
		writeProblem(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	defer done()
	_ = d.follow()
	handles, err := d.openTaps(taps)
	if err != nil {
		writeProblem(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/vnd.tcpdump.pcap")
	flush := http.NewResponseController(w)
	out := pcapgo.NewWriterNanos(w)
	if err := out.WriteFileHeader(262144, layers.LinkTypeEthernet); err != nil {
		return
	}
	_ = flush.Flush()
	var group sync.WaitGroup
	for _, h := range handles {
		group.Go(func() { listen(ctx, h, packets) })
	}
	ended := make(chan struct{})
	if len(handles) > 0 {
		go func() { group.Wait(); close(ended) }()
	}
	stop := context.AfterFunc(ctx, func() {
		for _, h := range handles {
			h.Close()
		}
	})
	defer stop()
	for {
		select {
		case p := <-packets:
			if out.WritePacket(p.info, p.data) != nil {
				return
			}
			if len(packets) == 0 {
				_ = flush.Flush()
			}
		case <-ended: // the devices are gone
			return
		case <-ctx.Done():
			return
		case <-d.ctx.Done():
			return
		}
	}
}

func writeProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"detail": detail})
}

type captured struct {
	info gopacket.CaptureInfo
	data []byte
}

func (d *daemon) openTaps(taps []tap) (handles []*pcapgo.EthernetHandle, err error) {
	for _, t := range taps {
		var errOpen error
		err = errors.Join(err, d.target().OnNode(t.node, func() error {
			var h *pcapgo.EthernetHandle
			if h, errOpen = pcapgo.NewEthernetHandle(t.device); errOpen == nil {
				handles = append(handles, h)
			}
			return errOpen
		}))
	}
	if err != nil {
		for _, h := range handles {
			h.Close()
		}
	}
	return handles, err
}

func listen(ctx context.Context, h *pcapgo.EthernetHandle, out chan<- captured) {
	for ctx.Err() == nil {
		data, info, err := h.ReadPacketData()
		if err != nil {
			return // closed, or the device is gone
		}
		if info.Timestamp.IsZero() {
			info.Timestamp = time.Now()
		}
		select {
		case out <- captured{info, data}:
		case <-ctx.Done():
			return
		}
	}
}
