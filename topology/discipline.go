package topology

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
)

// Queue says how packets wait for a direction of a link to be free: the maximum length of the
// queue, or a discipline of active queue management with its parameters. Names, units and defaults
// of these are those of tc (tc-codel(8), tc-fq_codel(8), tc-pie(8), tc-red(8)). The zero value is a
// tail-drop queue of QueueLimit packets.
//
// All parameters of its discipline are set, and no others, so that equal queues are ==.
type Queue struct {
	Discipline Discipline
	Limit      int // packets; of RED bytes

	Target   Duration // CoDel, PIE: the target waiting time
	Interval Duration // CoDel: within which the waiting time must have been below Target once
	TUpdate  Duration // PIE: between computations of the probability
	ECN      bool     // packets of ECN-capable flows (RFC 3168) are marked, not dropped

	Flows   int // FQ-CoDel: queues that flows are hashed to
	Quantum int // FQ-CoDel: bytes that a queue may send in its turn

	Alpha, Beta int // PIE: in 1/16 Hz

	Min, Max    int      // RED: average bytes from which packets may, and must, be dropped
	Probability Fraction // RED: of a drop, at Max
	AvPkt       int      // RED: bytes of an average packet
	Burst       int      // RED: average packets that may arrive at once; determines the weight of the average
}

// Discipline decides which packets of a queue are sent, marked or dropped.
type Discipline string

const (
	TailDrop Discipline = "" // those that find the queue full are dropped
	CoDel    Discipline = "codel"
	FQCoDel  Discipline = "fq_codel"
	PIE      Discipline = "pie"
	RED      Discipline = "red"
)

// Managed says whether packets are dropped or marked before the queue is full.
func (q Queue) Managed() bool { return q.Discipline != TailDrop }

// QueueParameter is a parameter of a discipline.
type QueueParameter struct {
	Name    string
	Meaning string // in a line, with its default

	field       func(*Queue) any // a pointer to it
	usual       func(*Queue)     // sets the default, once the parameters before it are set
	least, most int64            // of numbers and of nanoseconds
}

const (
	mostPackets = 10_000_000
	mostBytes   = 1 << 31
	mostWait    = int64(100e9)
)

func limitOf(packets int) QueueParameter {
	return QueueParameter{"limit", "Longest queue, in packets: " + strconv.Itoa(packets) + " when missing.",
		func(q *Queue) any { return &q.Limit }, func(q *Queue) { q.Limit = packets }, 1, mostPackets}
}

func targetOf(usual Duration) QueueParameter {
	return QueueParameter{"target", "How long packets may wait for long: " + usual.String() + " when missing.",
		func(q *Queue) any { return &q.Target }, func(q *Queue) { q.Target = usual }, 1000, mostWait}
}

func ecnOf(usual bool) QueueParameter {
	return QueueParameter{"ecn",
		"Mark packets that are capable of ECN in place of dropping them: " + strconv.FormatBool(usual) +
			" when missing.",
		func(q *Queue) any { return &q.ECN }, func(q *Queue) { q.ECN = usual }, 0, 0}
}

var intervalOfCoDel = QueueParameter{"interval",
	"Time in which the wait must have been below the target once, about the longest round trip: 100ms when missing.",
	func(q *Queue) any { return &q.Interval }, func(q *Queue) { q.Interval = 100e6 }, 1000, mostWait}

// disciplines have their parameters in an order in which defaults can be computed.
var disciplines = []struct {
	name       Discipline
	parameters []QueueParameter
}{
	{CoDel, []QueueParameter{limitOf(1000), targetOf(5e6), intervalOfCoDel, ecnOf(false)}},
	{FQCoDel, []QueueParameter{limitOf(10240), targetOf(5e6), intervalOfCoDel, ecnOf(true),
		{"flows", "Queues that flows are spread over: 1024 when missing.", func(q *Queue) any { return &q.Flows },
			func(q *Queue) { q.Flows = 1024 }, 1, 65536},
		{"quantum", "Bytes that a flow may send in its turn: 1514 when missing.",
			func(q *Queue) any { return &q.Quantum }, func(q *Queue) { q.Quantum = 1514 }, 256, 1 << 20}}},
	{PIE, []QueueParameter{limitOf(1000), targetOf(15e6),
		{"tupdate", "Time between computations of the probability: 15ms when missing.",
			func(q *Queue) any { return &q.TUpdate }, func(q *Queue) { q.TUpdate = 15e6 }, 1e6, int64(10e9)},
		{"alpha", "Weight of the wait's distance from the target, in 1/16 Hz: 2 when missing.",
			func(q *Queue) any { return &q.Alpha }, func(q *Queue) { q.Alpha = 2 }, 0, 32},
		{"beta", "Weight of the wait's growth, in 1/16 Hz: 20 when missing.", func(q *Queue) any { return &q.Beta },
			func(q *Queue) { q.Beta = 20 }, 0, 32},
		ecnOf(false)}},
	{RED, []QueueParameter{
		{"limit", "Longest queue, in bytes: 1000000 when missing.", func(q *Queue) any { return &q.Limit },
			func(q *Queue) { q.Limit = 1_000_000 }, 1, mostBytes},
		{"max", "Average queue from which all packets are dropped or marked, in bytes: a quarter of limit when missing.", func(q *Queue) any { return &q.Max }, func(q *Queue) { q.Max = q.Limit / 4 }, 1, mostBytes},
		{"min", "Average queue from which packets may be dropped or marked, in bytes: a third of max when missing.",
			func(q *Queue) any { return &q.Min }, func(q *Queue) { q.Min = q.Max / 3 }, 0, mostBytes},
		{"avpkt", "Usual packet, in bytes: 1000 when missing.", func(q *Queue) any { return &q.AvPkt },
			func(q *Queue) { q.AvPkt = 1000 }, 1, 65536},
		{"burst", "Usual packets that may come at once: (2 × min + max) / (3 × avpkt) when missing.",
			func(q *Queue) any { return &q.Burst },
			func(q *Queue) { q.Burst = max(1, (2*q.Min+q.Max)/max(1, 3*q.AvPkt)) }, 1, mostPackets},
		{"probability", "Share of packets that are dropped or marked when the average is at max: 2% when missing.",
			func(q *Queue) any { return &q.Probability }, func(q *Queue) { q.Probability = 0.02 }, 0, 0},
		ecnOf(false)}},
}

// Disciplines lists the disciplines of active queue management.
func Disciplines() (out []string) {
	for _, d := range disciplines {
		out = append(out, string(d.name))
	}
	return out
}

// QueueParameters lists the parameters of a discipline.
func QueueParameters(d Discipline) []QueueParameter {
	for _, one := range disciplines {
		if one.name == d {
			return one.parameters
		}
	}
	return nil
}

// QueueSetting is a parameter and its value as written: target, 2ms.
type QueueSetting struct{ Name, Value string }

// MakeQueue returns the queue of a discipline with some parameters given; the others have their
// defaults.
func MakeQueue(name string, given []QueueSetting) (Queue, error) {
	q := Queue{Discipline: Discipline(name)}
	parameters := QueueParameters(q.Discipline)
	if parameters == nil {
		return Queue{}, Mistaken("write a number of packets or "+words.Choose(Disciplines()),
			"%q is not a queueing discipline", clip(name))
	}
	at := func(name string) int {
		return slices.IndexFunc(given, func(s QueueSetting) bool { return s.Name == name })
	}
	for _, p := range parameters {
		if i := at(p.Name); i < 0 {
			p.usual(&q)
		} else if err := p.parse(&q, given[i].Value); err != nil {
			return Queue{}, err
		}
	}
	for i, s := range given {
		if !slices.ContainsFunc(parameters, func(p QueueParameter) bool { return p.Name == s.Name }) {
			return Queue{}, unknownParameter(s.Name, name, parameters)
		}
		if at(s.Name) != i {
			return Queue{}, Mistaken("keep one of them", "%s: %s is given twice", name, s.Name)
		}
	}
	return q, q.consistent()
}

// CheckQueueSetting says what is wrong with one parameter, whatever the others are.
func CheckQueueSetting(name string, s QueueSetting) error {
	parameters := QueueParameters(Discipline(name))
	for _, p := range parameters {
		if p.Name == s.Name {
			return p.parse(&Queue{Discipline: Discipline(name)}, s.Value)
		}
	}
	if parameters == nil {
		return nil // MakeQueue says that
	}
	return unknownParameter(s.Name, name, parameters)
}

func unknownParameter(name, of string, parameters []QueueParameter) error {
	known := lists.Map(parameters, func(p QueueParameter) string { return p.Name })
	return Mistaken(cmp.Or(DidYouMean(name, known), words.Choose(known)), "%s: there is no parameter %q", of,
		clip(name))
}

func (p QueueParameter) parse(q *Queue, s string) (err error) {
	bad := func(hint string) error { return Mistaken(hint, "%s: %q cannot be %s", q.Discipline, clip(s), p.Name) }
	switch into := p.field(q).(type) {
	case *bool:
		switch s {
		case "true", "yes", "on":
			*into = true
		case "false", "no", "off":
		default:
			return bad("write true or false")
		}
	case *int:
		if *into, err = strconv.Atoi(s); err != nil || p.outside(int64(*into)) {
			return bad("write a whole number, " + strconv.FormatInt(p.least, 10) + " to " +
				strconv.FormatInt(p.most, 10))
		}
	case *Duration:
		if *into, err = ParseDuration(s); err != nil || p.outside(int64(*into)) {
			return bad("write 5ms, from " + Duration(p.least).String() + " to " + Duration(p.most).String())
		}
	case *Fraction:
		if *into, err = ParseFraction(s); err != nil {
			return bad("write 2% or 0.02 (at most 100%)")
		}
	}
	return nil
}

func (p QueueParameter) outside(n int64) bool { return n < p.least || n > p.most }

// check says what is wrong with a queue, which may come from JSON.
func (q Queue) check() error {
	read, err := ParseQueue(q.String())
	if err == nil && read != q {
		err = Mistaken("write "+read.String(), "the queue %s has parameters of another discipline, or lacks some", q)
	}
	return err
}

// consistent says whether the parameters of a queue are compatible.
func (q Queue) consistent() error {
	switch {
	case q.Discipline != RED:
	case q.Min >= q.Max || q.Max > q.Limit:
		return Mistaken("choose them so, best max at least twice min, and limit several times max",
			"red: min %d, max %d and limit %d bytes do not rise", q.Min, q.Max, q.Limit)
	case q.REDWeight() == 0:
		return Mistaken("write a larger burst, or a smaller min",
			"red: a burst of %d packets of %d bytes (avpkt) never makes an average of %d bytes (min)", q.Burst, q.AvPkt,
			q.Min)
	}
	return nil
}

// REDWeight is the weight of the current queue in RED's average, as a power of ½: the one with
// which nothing is dropped from a burst that finds the queue empty (S. Floyd and V. Jacobson,
// Random Early Detection Gateways for Congestion Avoidance, 1993, section VI). 0: there is none.
func (q Queue) REDWeight() int {
	beyond := float64(q.Burst) + 1 - float64(q.Min)/float64(q.AvPkt)
	if beyond < 1 {
		return 0
	}
	for power := 1; power < 32; power++ {
		w := math.Pow(0.5, float64(power))
		if beyond <= (1-math.Pow(1-w, float64(q.Burst)))/w {
			return power
		}
	}
	return 0
}

// ParseQueue reads a queue's length in packets, or a discipline with parameters: 100, fq_codel,
// codel,target=2ms,ecn.
func ParseQueue(s string) (Queue, error) {
	s = strings.TrimSpace(s)
	name, rest, more := strings.Cut(s, ",")
	if name == "" || name[0] >= '0' && name[0] <= '9' || name[0] == '-' || name[0] == '+' {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > mostPackets {
			return Queue{}, Mistaken("write a number of packets, 1 to 10000000, or a discipline like fq_codel",
				"%q is not a queue length", clip(s))
		}
		return Queue{Limit: n}, nil
	}
	var given []QueueSetting
	for more {
		var word string
		word, rest, more = strings.Cut(rest, ",")
		key, value, has := strings.Cut(word, "=")
		if !has {
			switch key {
			case "ecn":
				value = "true"
			case "noecn": // as tc has it
				key, value = "ecn", "false"
			}
		}
		given = append(given, QueueSetting{key, value})
	}
	return MakeQueue(name, given)
}

// Settings returns the parameters of a queue that differ from their defaults.
func (q Queue) Settings() (out []QueueSetting) {
	for _, p := range QueueParameters(q.Discipline) {
		usual := q
		if p.usual(&usual); usual == q {
			continue
		}
		out = append(out, QueueSetting{p.Name, fmt.Sprint(reflect.ValueOf(p.field(&q)).Elem())})
	}
	return out
}

// String writes a queue as ParseQueue reads it.
func (q Queue) String() string {
	if !q.Managed() {
		return strconv.Itoa(q.Limit)
	}
	text := string(q.Discipline)
	for _, s := range q.Settings() {
		switch {
		case s.Name == "ecn" && s.Value == "true":
			text += ",ecn"
		case s.Name == "ecn":
			text += ",noecn"
		default:
			text += "," + s.Name + "=" + s.Value
		}
	}
	return text
}

// MarshalJSON writes a number of packets as a number, and a discipline as text.
func (q Queue) MarshalJSON() ([]byte, error) {
	if !q.Managed() {
		return json.Marshal(q.Limit)
	}
	return json.Marshal(q.String())
}

func (q *Queue) UnmarshalJSON(b []byte) (err error) {
	var text string
	switch {
	case json.Unmarshal(b, &text) == nil:
		*q, err = ParseQueue(text)
	default:
		*q = Queue{}
		err = json.Unmarshal(b, &q.Limit)
	}
	return err
}

// MininetRED is the queue that Mininet gives an interface with enable_red, or enable_ecn (TCIntf of
// its link.py).
func MininetRED(ecn bool) Queue {
	return Queue{Discipline: RED, Limit: 1_000_000, Min: 30_000, Max: 35_000, AvPkt: 1500, Burst: 20, Probability: 1,
		ECN: ecn}
}
