package topology

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Balance says how the controller spreads traffic over several paths between routing nodes and
// between switches. Its zero value is ECMP.
type Balance struct {
	By BalanceBy `json:"by,omitempty"`

	// The following apply to BalanceLoad; unset ones have the defaults of package routing/balance.
	// K1 and K2 are the weights of the used bandwidth and of the flow entries in a link's load,
	// Hysteresis is by how much the load of another path must be lower before traffic moves there,
	// Period is the interval at which loads are compared, and Moves limits how much moves each
	// time.
	K1         *Fraction `json:"k1,omitempty"`
	K2         *Fraction `json:"k2,omitempty"`
	Period     Duration  `json:"period,omitempty"`
	Hysteresis *Fraction `json:"hysteresis,omitempty"`
	Moves      int       `json:"moves,omitempty"`

	// Per is the unit of traffic that takes one path.
	Per BalancePer `json:"per,omitempty"`

	// Choose is when a path is chosen.
	Choose BalanceChoose `json:"choose,omitempty"`

	// Largest divides what a link carries by the bandwidth of the largest link: the other reading
	// of equation 2.
	Largest bool `json:"largest,omitempty"`
}

// BalanceBy is the criterion by which traffic is spread.
type BalanceBy string

const (
	// Over all shortest paths, by a hash of addresses and ports; switches use a tree. The default.
	BalanceECMP BalanceBy = "ecmp"
	BalanceOff  BalanceBy = "off" // not at all: one shortest path
	// Traffic to a subnet, or between switches to a host, takes one path, and moves to another one
	// when that is busy.
	BalanceLoad BalanceBy = "load"
)

// BalancePer is the unit of traffic between routing nodes that takes one path with BalanceLoad.
type BalancePer string

const (
	PerPrefix BalancePer = "prefix" // all that goes to a subnet; the default
	PerFlow   BalancePer = "flow"   // each TCP connection, and UDP traffic between two ports
	PerPart   BalancePer = "part"   // connections to a subnet whose ports have certain bits in common
)

// BalanceChoose is when BalanceLoad chooses a path.
type BalanceChoose string

const (
	// Another one when links of the path are busy with other traffic, and it is of use; the
	// default.
	ChooseBusy BalanceChoose = "busy"

	// The two readings of paper 2, whose algorithm 1 is the path whose links are loaded least: when
	// traffic begins, and never again; or every period, by loads of which its own is a part.
	ChooseOnce   BalanceChoose = "once"
	ChooseAlways BalanceChoose = "always"
)

// Limits on a period: the controller's own readings are a second apart, and longer periods do not
// follow the traffic.
const (
	minBalancePeriod = Duration(time.Second)
	maxBalancePeriod = Duration(10 * time.Minute)
)

// balances are the values of BalanceBy.
var balances = []BalanceBy{BalanceECMP, BalanceOff, BalanceLoad}

// Balancing returns the criterion by which the topology's traffic is spread.
func (t *Topology) Balancing() BalanceBy {
	if t.Balance == nil {
		return BalanceECMP
	}
	return cmp.Or(t.Balance.By, BalanceECMP)
}

// String returns the setting as written in a file.
func (b *Balance) String() string {
	if b == nil {
		return string(BalanceECMP)
	}
	words := []string{"by: " + string(cmp.Or(b.By, BalanceECMP))}
	add := func(key, value string, is bool) {
		if is {
			words = append(words, key+": "+value)
		}
	}
	for _, f := range []struct {
		key   string
		value *Fraction
	}{{"k1", b.K1}, {"k2", b.K2}, {"hysteresis", b.Hysteresis}} {
		if f.value != nil {
			add(f.key, f.value.String(), true)
		}
	}
	add("period", b.Period.String(), b.Period != 0)
	add("per", string(b.Per), b.Per != "")
	add("choose", string(b.Choose), b.Choose != "")
	add("moves", strconv.Itoa(b.Moves), b.Moves != 0)
	add("largest", "true", b.Largest)
	if len(words) == 1 {
		return strings.TrimPrefix(words[0], "by: ")
	}
	return "{" + strings.Join(words, ", ") + "}"
}

// balance checks the setting.
func (v *validator) balance() {
	b := v.t.Balance
	if b == nil {
		return
	}
	bad := func(hint, format string, args ...any) { v.problems.Add(v.t.Pos, hint, "balance: "+format, args...) }
	if b.By != "" && !slices.Contains(balances, b.By) {
		bad("choose ecmp, off or load", "nothing is spread by %q", b.By)
	}
	if (Balance{By: b.By}) != *b && b.By != BalanceLoad {
		bad("add by: load, or leave them out", "k1, k2, period, hysteresis, per, choose, moves and largest belong to by: load")
	}
	if b.Per != "" && b.Per != PerPrefix && b.Per != PerPart && b.Per != PerFlow {
		bad("choose prefix, part or flow", "nothing is balanced per %q", b.Per)
	}
	switch b.Choose {
	case "", ChooseBusy:
	case ChooseOnce, ChooseAlways:
		if b.Hysteresis != nil || b.Moves != 0 {
			bad("leave them out, or choose: busy", "with choose: %s there is neither a hysteresis nor a limit of moves", b.Choose)
		}
	default:
		bad("choose busy, once or always", "no path is chosen %q", b.Choose)
	}
	one := func(name string, f *Fraction) {
		if f != nil && (*f < 0 || *f > 1) {
			bad("write a number from 0 to 1, or a percentage", "%s is %s", name, f)
		}
	}
	one("k1", b.K1)
	one("k2", b.K2)
	one("hysteresis", b.Hysteresis)
	if b.K1 != nil && b.K2 != nil && *b.K1+*b.K2 == 0 {
		bad("give one of them a weight", "with k1 and k2 of 0 all links look the same")
	}
	if b.Period != 0 && (b.Period < minBalancePeriod || b.Period > maxBalancePeriod) {
		bad("write 2s, or from 1s to 10m", "the period is %s", b.Period)
	}
	if b.Moves < 0 {
		bad("write 1 or more", "moves is %d", b.Moves)
	}
}
