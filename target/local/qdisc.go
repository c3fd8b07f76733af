package local

import (
	"math"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/topology"
)

// qdisc is a queueing discipline, in the form in which the kernel is asked for it.
type qdisc struct {
	index          int // of the device
	kind           string
	handle, parent uint32
	head           []byte // what precedes the options of netem
	options        []option
	flows          uint32 // of fq_codel, which cannot change them
	bucket         int    // of tbf, bytes
}

type option struct {
	kind  int
	value []byte
}

func (q *qdisc) set(kind int, value []byte) { q.options = append(q.options, option{kind, value}) }

func (q *qdisc) number(kind int, value uint32) { q.set(kind, nl.Uint32Attr(value)) }

// put adds, replaces or (without flags) changes the discipline in the thread's namespace.
func (q *qdisc) put(flags int) error {
	request := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, flags|unix.NLM_F_ACK)
	request.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(q.index), Handle: q.handle, Parent: q.parent})
	request.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(q.kind)))
	options := nl.NewRtAttr(nl.TCA_OPTIONS, q.head)
	for _, o := range q.options {
		options.AddRtAttr(o.kind, o.value)
	}
	request.AddData(options)
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// Attributes of linux/pkt_sched.h; those of fq_codel begin as those of codel.
const (
	pieTarget, pieLimit, pieTUpdate, pieAlpha, pieBeta, pieECN = 1, 2, 3, 4, 5, 6
	redParameters, redTable, redMaxP                           = 1, 2, 3
)

// managed returns the discipline for a managed queue.
func managed(i topology.Impairment) qdisc {
	p := i.Queue
	q := qdisc{kind: string(p.Discipline), handle: queueHandle}
	us := func(d topology.Duration) uint32 { return uint32(time.Duration(d).Microseconds()) }
	ecn := uint32(0)
	if p.ECN {
		ecn = 1
	}
	switch p.Discipline {
	case topology.CoDel, topology.FQCoDel:
		q.number(nl.TCA_FQ_CODEL_TARGET, us(p.Target))
		q.number(nl.TCA_FQ_CODEL_LIMIT, uint32(p.Limit))
		q.number(nl.TCA_FQ_CODEL_INTERVAL, us(p.Interval))
		q.number(nl.TCA_FQ_CODEL_ECN, ecn)
		if p.Discipline == topology.FQCoDel {
			q.flows = uint32(p.Flows)
			q.number(nl.TCA_FQ_CODEL_FLOWS, q.flows)
			q.number(nl.TCA_FQ_CODEL_QUANTUM, uint32(p.Quantum))
		}
	case topology.PIE:
		q.number(pieTarget, us(p.Target))
		q.number(pieLimit, uint32(p.Limit))
		q.number(pieTUpdate, us(p.TUpdate))
		q.number(pieAlpha, uint32(p.Alpha))
		q.number(pieBeta, uint32(p.Beta))
		q.number(pieECN, ecn)
	case topology.RED:
		table, cell := idleTable(p, i.Bandwidth)
		parameters := nl.Uint32Attr(uint32(p.Limit))
		parameters = append(parameters, nl.Uint32Attr(uint32(p.Min))...)
		parameters = append(parameters, nl.Uint32Attr(uint32(p.Max))...)
		parameters = append(parameters, byte(p.REDWeight()), slope(p), cell, byte(ecn))
		q.set(redParameters, parameters)
		q.set(redTable, table)
		q.number(redMaxP, uint32(math.Round(float64(p.Probability)*math.MaxUint32)))
	}
	return q
}

// slope is the power of ½ by which RED's probability grows with each byte of the average, for
// kernels that do not take the probability itself.
func slope(p topology.Queue) byte {
	per := float64(p.Probability) / float64(p.Max-p.Min)
	power := 0
	for ; per <= 1 && power < 31; power++ {
		per *= 2
	}
	return byte(power)
}

// idleTable is the power of ½ by which RED's average shrinks while the queue is empty, as if
// packets of the usual size had been sent: an entry for each number of cells, which are a power of
// 2 microseconds long.
func idleTable(p topology.Queue, rate topology.Rate) (table []byte, cell byte) {
	const most = 31 // halvings
	packet := float64(p.AvPkt) * 8e6 / float64(rate)
	perMicrosecond := -math.Log2(1-math.Pow(0.5, float64(p.REDWeight()))) / packet
	for ; cell < 31 && most/perMicrosecond/math.Pow(2, float64(cell)) >= 512; cell++ {
	}
	table = make([]byte, 256)
	for i := range table {
		table[i] = byte(min(most, float64(i)*math.Pow(2, float64(cell))*perMicrosecond))
	}
	return table, cell
}
