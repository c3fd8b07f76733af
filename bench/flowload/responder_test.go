package flowload

import (
	"net"
	"testing"

	"trivet.dev/trivet/openflow"
)

func listenFor(b *testing.B) (net.Listener, string) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return l, "tcp:" + l.Addr().String()
}

// respond is the least that a controller can do: a prepared FLOW_MOD for each packet's buffer, to
// the port that is in the destination's address. So nothing but the generator and the kernel is
// measured.
func respond(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go respondTo(conn)
	}
}

func respondTo(conn net.Conn) {
	defer conn.Close()
	out := (&openflow.Hello{Versions: openflow.Versions(openflow.Version)}).AppendTo(nil)
	out = (&openflow.FeaturesRequest{}).AppendTo(out)
	out = openflow.NewFlowMod(openflow.FlowAdd, 0, openflow.Match{}, openflow.ApplyActions(openflow.OutputController(128))).AppendTo(out)
	answer := openflow.NewFlowMod(openflow.FlowAdd, 1, openflow.NewMatch(openflow.EthDst(openflow.MAC{2, 0, 0, 0, 0, 1})), openflow.ApplyActions(openflow.Output(1)))
	prepared := answer.AppendTo(nil)
	const oxmAt, actionAt = 52 + 4, 64 + 8 + 4
	r := openflow.NewReader(conn, 0)
	for {
		if !r.Ready() {
			if _, err := conn.Write(out); err != nil {
				return
			}
			out = out[:0]
		}
		b, err := r.Next()
		if err != nil {
			return
		}
		if openflow.Type(b[1]) != openflow.TypePacketIn {
			continue
		}
		at := len(out)
		out = append(out, prepared...)
		copy(out[at+32:], b[8:12])
		frame := b[len(b)-frameLen:]
		copy(out[at+oxmAt:], frame[:6])
		be.PutUint32(out[at+actionAt:], portOf(uint32(mac(frame)&0xffffff), 4))
	}
}
