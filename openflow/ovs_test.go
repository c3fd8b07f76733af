package openflow_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/datapath/ovs"
	of "trivet.dev/trivet/openflow"
)

const ovsGolden = "testdata/ovs-received.hex"

// patience bounds what the whole test takes, of which seconds are usual.
const patience = 5 * time.Minute

// controller is a connection to a bridge of a private Open vSwitch, by its management socket.
type controller struct {
	t        *testing.T
	socket   string // "unix:…", for ovs-ofctl
	r        *of.Reader
	w        *of.Writer
	parts    of.Reassembler
	xid      uint32
	async    []of.Message // what has come without being asked for
	received [][]byte     // all that has come
}

// connect starts an Open vSwitch in a namespace of its own, with a bridge of two ports.
func connect(t *testing.T) *controller {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := exec.LookPath("ovs-vswitchd"); err != nil {
		t.Skip("Open vSwitch is not installed")
	}
	dir, err := os.MkdirTemp("", "of") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ns := fmt.Sprintf("trivet-of-%d", os.Getpid())
	run(t, "ip", "netns", "add", ns)
	t.Cleanup(func() { run(t, "ip", "netns", "del", ns) })
	run(t, "ip", "-n", ns, "link", "add", "p1", "type", "veth", "peer", "name", "p2")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	switches, err := ovs.Start(ctx, ovs.Config{Dir: dir, NetNS: "/run/netns/" + ns, Datapath: ovs.Netdev})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := switches.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	bridge := ovs.Bridge{
		Name: "s1", DPID: 0xaa, OpenFlow: []string{"1.3"},
		Controllers: []string{"unix:" + dir + "/none"}, FailMode: "secure", // no flows of its own
		Ports: []ovs.Port{{Name: "p1", Number: 1}, {Name: "p2", Number: 2}},
	}
	if err := switches.Apply(ctx, []ovs.Bridge{bridge}); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s1.mgmt")
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return &controller{t: t, socket: "unix:" + socket, r: of.NewReader(conn, 0), w: of.NewWriter(conn)}
}

func run(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

// send gives the message the next transaction id and sends it.
func (c *controller) send(m of.Message) {
	c.t.Helper()
	c.xid++
	m.SetTransaction(c.xid)
	if err := errors.Join(c.w.Write(m), c.w.Flush()); err != nil {
		c.t.Fatal(err)
	}
}

// receive returns the next message, which must be encoded as it came.
func (c *controller) receive() of.Message {
	c.t.Helper()
	b, err := c.r.Next()
	if err != nil {
		c.t.Fatal(err)
	}
	c.received = append(c.received, b)
	m, err := of.Decode(b)
	if err != nil {
		c.t.Fatalf("%v\n% x", err, b)
	}
	checkEncoding(c.t, m, b)
	return m
}

// checkEncoding checks that m, which has been decoded from b, is encoded as it came. There are
// two ways in which it may differ: Open vSwitch has an order of its own for the fields of a match,
// and answers in the version in which it was asked.
func checkEncoding(t *testing.T, m of.Message, b []byte) {
	t.Helper()
	again := m.AppendTo(nil)
	switch m := m.(type) {
	case *of.Error:
		again[0] = b[0]
	case *of.MultipartReply:
		if m.Body.MultipartType() == of.MultipartFlow {
			back, err := of.Decode(again)
			if err != nil || len(again) != len(b) || !reflect.DeepEqual(back, of.Message(m)) {
				t.Errorf("%v\n%v: %v", m, back, err)
			}
			return
		}
	}
	if !bytes.Equal(again, b) {
		t.Errorf("%v\nOpen vSwitch % x\nwe           % x", m, b, again)
	}
}

// answer returns the answer to the message sent last, put together from its parts.
func (c *controller) answer() of.Message {
	c.t.Helper()
	for {
		m := c.receive()
		switch echo := m.(type) {
		case *of.EchoRequest:
			if err := errors.Join(c.w.Write(echo.Reply()), c.w.Flush()); err != nil {
				c.t.Fatal(err)
			}
			continue
		case *of.MultipartReply:
			whole, err := c.parts.Reply(echo)
			if err != nil {
				c.t.Fatal(err)
			}
			if whole == nil {
				continue
			}
			m = whole
		}
		if m.Transaction() == c.xid {
			return m
		}
		c.async = append(c.async, m)
	}
}

// ask sends the message and returns the answer, which must be of type M.
func ask[M of.Message](c *controller, m of.Message) M {
	c.t.Helper()
	c.send(m)
	a, ok := c.answer().(M)
	if !ok {
		c.t.Fatalf("%v: another answer", m)
	}
	return a
}

// stats asks for a multipart reply of body type B.
func stats[B of.MultipartBody](c *controller, body of.MultipartBody) B {
	c.t.Helper()
	reply := ask[*of.MultipartReply](c, &of.MultipartRequest{Body: body})
	b, ok := reply.Body.(B)
	if !ok {
		c.t.Fatalf("%v: the answer is %v", body.MultipartType(), reply)
	}
	return b
}

// do sends messages that have no answer; Open vSwitch must not complain.
func (c *controller) do(messages ...of.Message) {
	c.t.Helper()
	for _, m := range messages {
		c.send(m)
	}
	before := len(c.async)
	ask[*of.BarrierReply](c, &of.BarrierRequest{})
	for _, m := range c.async[before:] {
		if e, ok := m.(*of.Error); ok {
			c.t.Errorf("%v\n%v", e, messages)
		}
	}
}

// Open vSwitch is asked everything that the codec can ask, told flows, groups and meters, and
// gives back what it was told. All that it sends is encoded as it came.
func TestOpenVSwitch(t *testing.T) {
	c := connect(t)
	c.handshake()
	for _, part := range []struct {
		name string
		test func(*controller, *testing.T)
	}{
		{"statistics", (*controller).testStatistics},
		{"state", (*controller).testState},
		{"groups", (*controller).testGroups},
		{"meters", (*controller).testMeters},
		{"flows", (*controller).testFlows},
		{"text", (*controller).testText},
		{"packets", (*controller).testPackets},
		{"errors", (*controller).testErrors},
	} {
		t.Run(part.name, func(t *testing.T) {
			c.t = t
			part.test(c, t)
		})
		c.t = t
	}
	if update := flag.Lookup("update"); update != nil && update.Value.String() == "true" {
		c.record()
	}
}

// record keeps one message of each type, multipart type and length; of the long list of table
// features, the first element.
func (c *controller) record() {
	var lines strings.Builder
	seen := make(map[string]bool)
	for _, b := range c.received {
		kind := fmt.Sprintf("%d %d", b[1], len(b))
		if b[1] == byte(of.TypeMultipartReply) {
			kind += fmt.Sprintf(" % x", b[8:10])
			if of.MultipartType(b[9]) == of.MultipartTableFeatures {
				n := 16 + int(b[16])<<8 + int(b[17])
				b = append([]byte(nil), b[:n]...)
				b[2], b[3] = byte(n>>8), byte(n)
				kind = "table features"
			}
		}
		if !seen[kind] {
			seen[kind] = true
			lines.WriteString(hex.EncodeToString(b) + "\n")
		}
	}
	if err := os.WriteFile(ovsGolden, []byte(lines.String()), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// What an Open vSwitch once sent is decoded, and encoded to the same bytes.
func TestOpenVSwitchRecorded(t *testing.T) {
	recorded, err := os.ReadFile(ovsGolden)
	if err != nil {
		t.Fatal(err)
	}
	types := make(map[of.Type]bool)
	for line := range strings.Lines(string(recorded)) {
		b, err := hex.DecodeString(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		m, err := of.Decode(b)
		if err != nil {
			t.Errorf("%v\n% x", err, b)
			continue
		}
		checkEncoding(t, m, b)
		types[m.Type()] = true
	}
	if len(types) < 10 {
		t.Errorf("only %v", types)
	}
}

// equal compares, and tells what differs.
func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\ngot  %+v\nwant %+v", what, got, want)
	}
}
