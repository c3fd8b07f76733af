package local

import (
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/lab"
)

// TestQueueOf proves what is made of a device's queueing disciplines: none where nothing can wait,
// the root's counts for all below it, drops told apart only where each discipline drops for one
// reason, whatever others a user or an interface has.
func TestQueueOf(t *testing.T) {
	attrs := func(handle, parent uint32) netlink.QdiscAttrs {
		return netlink.QdiscAttrs{Handle: handle, Parent: parent, Statistics: &netlink.QdiscStatistics{Queue: &netlink.GnetStatsQueue{Qlen: 7, Backlog: 700, Drops: 3}}}
	}
	root, child := attrs(rateHandle, netlink.HANDLE_ROOT), attrs(delayHandle, rateHandle|1)
	for name, c := range map[string]struct {
		list []netlink.Qdisc
		kind string
		told bool
	}{
		"no qdisc":       {nil, "", false},
		"ingress alone":  {[]netlink.Qdisc{&netlink.GenericQdisc{QdiscAttrs: attrs(0xffff0000, netlink.HANDLE_INGRESS), QdiscType: "clsact"}}, "", false},
		"noqueue":        {[]netlink.Qdisc{&netlink.GenericQdisc{QdiscAttrs: attrs(0, netlink.HANDLE_ROOT), QdiscType: "noqueue"}}, "", false},
		"tbf":            {[]netlink.Qdisc{&netlink.Tbf{QdiscAttrs: root}}, "tbf", true},
		"tbf, netem":     {[]netlink.Qdisc{&netlink.Netem{QdiscAttrs: child}, &netlink.Tbf{QdiscAttrs: root}}, "tbf netem", true},
		"netem, loss":    {[]netlink.Qdisc{&netlink.Tbf{QdiscAttrs: root}, &netlink.Netem{QdiscAttrs: child, Loss: 1}}, "tbf netem", false},
		"a user's":       {[]netlink.Qdisc{&netlink.GenericQdisc{QdiscAttrs: root, QdiscType: "fq_codel"}}, "fq_codel", false},
		"several queues": {[]netlink.Qdisc{&netlink.GenericQdisc{QdiscAttrs: root, QdiscType: "mq"}, &netlink.Fq{QdiscAttrs: attrs(0, rateHandle|1)}, &netlink.Fq{QdiscAttrs: attrs(0, rateHandle|2)}}, "mq", false},
	} {
		q := queueOf(c.list)
		switch {
		case c.kind == "":
			if q != nil {
				t.Errorf("%s: %+v", name, q)
			}
		case q == nil || q.Kind != c.kind || q.Packets != 7 || q.Bytes != 700 || q.Dropped != 3 || (q.Full != nil) != c.told || c.told && (*q.Full != 3 || *q.Lost != 0):
			t.Errorf("%s: %+v", name, q)
		}
	}
}

// TestDumped proves that a list which the kernel has changed meanwhile is read again, and in the
// end taken as it is, and that other errors are errors.
func TestDumped(t *testing.T) {
	for name, c := range map[string]struct {
		interrupted int // so many times
		then, want  error
	}{
		"at once": {0, nil, nil}, "the third time": {2, nil, nil}, "never": {1 << 30, nil, nil},
		"an error": {2, unix.EPERM, unix.EPERM},
	} {
		read := 0
		out, err := dumped(func() ([]int, error) {
			if read++; read <= c.interrupted {
				return []int{read}, netlink.ErrDumpInterrupted
			}
			return []int{read}, c.then
		})
		if err != c.want || len(out) != 1 || out[0] != read || read != min(c.interrupted+1, 10) {
			t.Errorf("%s: %v, %v, read %d times", name, out, err, read)
		}
	}
}

// TestQueueAdd proves that what an earlier queue has dropped is added, and that what one of the two
// does not tell apart the sum does not either.
func TestQueueAdd(t *testing.T) {
	n := func(v uint64) *uint64 { return &v }
	q := lab.Backlog{Dropped: 3, Full: n(1), Lost: n(2)}
	addPast(&q, nil)
	addPast(&q, &lab.Backlog{Dropped: 10, Full: n(4), Lost: n(6)})
	if q.Dropped != 13 || *q.Full != 5 || *q.Lost != 8 {
		t.Errorf("%+v", q)
	}
	if addPast(&q, &lab.Backlog{Dropped: 1}); q.Dropped != 14 || q.Full != nil || q.Lost != nil {
		t.Errorf("%+v", q)
	}
}
