package netfacts

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// classful are the disciplines whose classes have parameters of their own, and those to whose
// classes filters can assign packets.
var (
	classful = []string{"htb", "hfsc", "drr", "qfq"}
	filtered = []string{"htb", "hfsc", "drr", "qfq", "prio", "cbq", "ingress", "clsact", "dsmark", "ets", "sfq",
		"fq_codel", "multiq"}
)

// standing is a discipline that may have classes or filters.
type standing struct {
	device uint32
	kind   string
	handle uint32
}

// qdiscs reads the disciplines that someone has added (those without a number are the kernel's
// defaults), with their classes and filters.
func (r *reader) qdiscs() error {
	var more []standing
	err := r.each(unix.RTM_GETQDISC, make([]byte, nl.SizeofTcMsg), func(m []byte) {
		handle := u32(m, 8)
		if len(m) < nl.SizeofTcMsg || handle == 0 {
			return
		}
		a := attributes(m, nl.SizeofTcMsg)
		kind := text(a[unix.TCA_KIND])
		r.facts.put(Qdisc, r.names[u32(m, 4)], placeOf(u32(m, 12)),
			strings.TrimSpace(fmt.Sprintf("%s %s %s", kind, handleOf(handle), parameters(kind, a[unix.TCA_OPTIONS]))))
		if slices.Contains(filtered, kind) {
			more = append(more, standing{u32(m, 4), kind, handle})
		}
	})
	for _, q := range more {
		if err == nil && slices.Contains(classful, q.kind) {
			err = r.classes(q)
		}
		parents := []uint32{q.handle}
		if q.kind == "clsact" {
			parents = []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS}
		}
		for _, p := range parents {
			if err == nil {
				err = r.filters(q, p)
			}
		}
	}
	return err
}

func tcAsk(device, parent uint32) []byte {
	ask := make([]byte, nl.SizeofTcMsg)
	binary.NativeEndian.PutUint32(ask[4:], device)
	binary.NativeEndian.PutUint32(ask[12:], parent)
	return ask
}

func (r *reader) classes(q standing) error {
	return r.each(unix.RTM_GETTCLASS, tcAsk(q.device, 0), func(m []byte) {
		a := attributes(m, nl.SizeofTcMsg)
		kind := text(a[unix.TCA_KIND])
		r.facts.put(Class, r.names[q.device], handleOf(u32(m, 8)), kind+" "+digest(a[unix.TCA_OPTIONS]))
	})
}

// actions are the attributes with a filter's actions, by kind of filter.
var actions = map[string]uint16{"basic": 3, "bpf": 1, "cgroup": 1, "flow": 9, "flower": 3, "fw": 4, "matchall": 2,
	"route": 6, "u32": 7}

func (r *reader) filters(q standing, parent uint32) error {
	return r.each(unix.RTM_GETTFILTER, tcAsk(q.device, parent), func(m []byte) {
		handle := u32(m, 8)
		if len(m) < nl.SizeofTcMsg || handle == 0 {
			return // the list itself
		}
		a := attributes(m, nl.SizeofTcMsg)
		kind := text(a[unix.TCA_KIND])
		value := kind
		eachAttribute(attributes(a[unix.TCA_OPTIONS], 0)[actions[kind]], 0, func(_ uint16, action []byte) {
			of := attributes(action, 0)
			word := text(of[1]) // TCA_ACT_KIND
			if parms := attributes(of[2], 0)[2]; word == "gact" && len(parms) >= 12 {
				if word = "pass"; int32(u32(parms, 8)) == 2 { // TC_ACT_SHOT
					word = "drop"
				}
			}
			value += " " + word
		})
		name := fmt.Sprintf("%s pref %d %#x", placeOf(parent), u32(m, 16)>>16, handle)
		r.facts.put(Filter, r.names[q.device], name, value)
	})
}

// placeOf describes where a discipline or filter is.
func placeOf(parent uint32) string {
	switch parent {
	case netlink.HANDLE_ROOT:
		return "root"
	case netlink.HANDLE_INGRESS, netlink.HANDLE_MIN_INGRESS, 0xffff0000:
		return "ingress"
	case netlink.HANDLE_MIN_EGRESS:
		return "egress"
	}
	return "parent " + handleOf(parent)
}

func handleOf(h uint32) string {
	if h&0xffff == 0 {
		return fmt.Sprintf("%x:", h>>16)
	}
	return fmt.Sprintf("%x:%x", h>>16, h&0xffff)
}

// Of linux/pkt_sched.h.
const (
	tbfParameters, tbfRate64 = 1, 4
	netemLatency64           = 10
	htbInit                  = 2
)

// parameters describes the best-known parameters of a discipline, and represents the others by a
// digest.
func parameters(kind string, options []byte) string {
	switch kind {
	case "ingress", "clsact":
		return ""
	case "tbf":
		a := attributes(options, 0)
		rate := uint64(u32(a[tbfParameters], 8)) // struct tc_ratespec
		if wide := a[tbfRate64]; len(wide) == 8 {
			rate = binary.NativeEndian.Uint64(wide)
		}
		return fmt.Sprintf("rate %dbit %s", rate*8, digest(options))
	case "netem": // struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter
		out := ""
		if wide := attributes(options, 24)[netemLatency64]; len(wide) == 8 {
			out = fmt.Sprintf("delay %s ", time.Duration(binary.NativeEndian.Uint64(wide)))
		}
		if loss := u32(options, 8); loss > 0 {
			out += fmt.Sprintf("loss %.3g%% ", float64(loss)/(1<<32-1)*100)
		}
		return out + digest(options)
	case "htb": // direct_pkts in struct tc_htb_glob is a counter
		options = slices.Clone(options)
		eachAttribute(options, 0, func(kind uint16, v []byte) {
			if kind == htbInit && len(v) >= 20 {
				clear(v[16:20])
			}
		})
	case "sfq": // statistics follow struct tc_sfq_qopt and the RED settings
		options = options[:min(len(options), 44)]
	}
	return digest(options)
}

// digest represents what cannot be described; "": nothing.
func digest(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	h := fnv.New32a()
	h.Write(b)
	return fmt.Sprintf("#%08x", h.Sum32())
}

func number(n uint32) string { return strconv.Itoa(int(int32(n))) }
