package differ

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/datapath/embedded/wire"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/openflow"
)

// Two switches with a link between their last ports, and a host at each of the others.
const (
	switches = 2
	ports    = 4
	hosts    = switches * (ports - 1)
)

// placeOf is the switch, counted from 0, and the port of a host.
func placeOf(host int) (sw int, port uint32) { return host / (ports - 1), uint32(host%(ports-1) + 1) }

// received is what hosts get, in the order in which it comes.
type received [hosts][][]byte

// system is one way to be the two switches.
type system interface {
	name() string
	clear()                                                        // no flows, no groups
	flow(sw int, m *openflow.FlowMod) error                        // an error where the switch refuses it
	group(sw int, m *openflow.GroupMod) error                      // likewise
	barrier()                                                      // what was said before is in force
	send(host int, frame []byte, want *received) (received, error) // and wait for all that it leads to
	counters(sw int) counters
}

// markLabel is that of the frame which says that those before it have come.
const markLabel = 0xabcde

// markFlows have a mark come out at all hosts, wherever it comes in.
func markFlows() (list []*openflow.FlowMod) {
	mark := func(in uint32) openflow.Match {
		return openflow.NewMatch(openflow.InPort(in), openflow.EthType(openflow.EthTypeMPLS), openflow.MPLSLabel(markLabel))
	}
	all := []openflow.Action{openflow.Output(1), openflow.Output(2), openflow.Output(3)}
	list = append(list, openflow.NewFlowMod(openflow.FlowAdd, 65535, mark(ports), openflow.ApplyActions(all...)))
	for in := range uint32(ports - 1) {
		actions := append([]openflow.Action{openflow.Output(ports), openflow.Output(openflow.PortInPort)}, all...)
		list = append(list, openflow.NewFlowMod(openflow.FlowAdd, 65535, mark(in+1), openflow.ApplyActions(actions...)))
	}
	return list
}

// markFrame is a mark with a number.
func markFrame(n uint64) []byte {
	b := make([]byte, 60)
	copy(b, []byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x88, 0x47})
	binary.BigEndian.PutUint32(b[14:], markLabel<<12|1<<8|64)
	binary.BigEndian.PutUint64(b[18:], n)
	b[59] = 1
	return b
}

// wires are the devices of the hosts of one system, in a namespace of their own. Their other ends,
// p0, p1, …, are in another one.
type wires struct {
	t       testing.TB
	fabric  string
	devices [hosts]*wire.Device
	got     [hosts]chan []byte
	marks   uint64
}

func newWires(t testing.TB, which string) *wires {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	w := &wires{t: t, fabric: fmt.Sprintf("trivet-differ-%d-%s", os.Getpid(), which)}
	ends := w.fabric + "-h"
	for _, ns := range []string{w.fabric, ends} {
		run(t, "ip", "netns", "add", ns)
		t.Cleanup(func() { run(t, "ip", "netns", "del", ns) })
		run(t, "ip", "netns", "exec", ns, "sh", "-c", "for d in default all; do f=/proc/sys/net/ipv6/conf/$d/disable_ipv6; [ ! -e $f ] || echo 1 >$f; done; ip link set lo up")
	}
	for h := range hosts {
		p, c := fmt.Sprint("p", h), fmt.Sprint("c", h)
		run(t, "ip", "-n", w.fabric, "link", "add", p, "type", "veth", "peer", "name", c, "netns", ends)
		run(t, "ip", "-n", w.fabric, "link", "set", p, "up")
		run(t, "ip", "-n", ends, "link", "set", c, "arp", "off", "up")
	}
	for h := range hosts {
		w.open(ends, h)
	}
	return w
}

func (w *wires) open(ns string, h int) {
	w.t.Helper()
	if err := inside.Namespace("/run/netns/"+ns, func() (err error) {
		w.devices[h], err = wire.Open(fmt.Sprint("c", h))
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	got, done := make(chan []byte, 10000), make(chan struct{})
	w.got[h] = got
	go func() {
		defer close(done)
		_ = w.devices[h].Receive(func(p *pipeline.Packet) {
			select {
			case got <- bytes.Clone(p.Data):
			default: // a storm; the mark will be missed
			}
		})
	}()
	w.t.Cleanup(func() { w.devices[h].Close(); <-done })
}

// send sends a frame (nil: none) and a mark from a host, and returns what the hosts get before the
// mark, and after it as long as less has come than there should: one packet may overtake another
// one of another flow.
func (w *wires) send(host int, frame []byte, want *received) (got received, err error) {
	w.marks++
	mark := markFrame(w.marks)
	for _, b := range [][]byte{frame, mark} {
		if b == nil {
			continue
		}
		if err := w.devices[host].Send(&pipeline.Sent{Data: b}, &pipeline.Packet{Data: b}); err != nil {
			return got, err
		}
	}
	var marked [hosts]bool
	for late := time.After(time.Minute); ; {
		waiting := -1
		for h := range hosts {
			if !marked[h] || len(got[h]) < len(want[h]) {
				waiting = h
			}
		}
		if waiting < 0 {
			return got, nil
		}
		select {
		case b := <-w.got[waiting]:
			if !bytes.Equal(b, mark) {
				got[waiting] = append(got[waiting], b)
			} else if marked[waiting] = true; marked == [hosts]bool{true, true, true, true, true, true} {
				late = time.After(5 * time.Second)
			}
		case <-late:
			if !marked[waiting] {
				err = fmt.Errorf("the frame that marks the end has not come to host %d", waiting)
			}
			return got, err
		}
	}
}

func init() { runtime.LockOSThread() } // the first thread is not to be left in a namespace

func run(t testing.TB, command ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
}
