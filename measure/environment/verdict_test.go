package environment

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trivet.dev/trivet/measure/stats"
)

// calm is a machine that nothing speaks against.
func calm() Usage {
	return Usage{Seconds: 10, Looks: 50, Interval: 0.2, LongestGap: 0.21, Processors: 2, Busy: 0.4, SoftIRQCore: 0.1, Pressure: 0.05, RunQueue: 1,
		Softnet: &Softnet{Processed: 1_000_000}}
}

// TestJudge proves what each threshold leads to, on either side of it, and that the reason is
// named.
func TestJudge(t *testing.T) {
	with := func(change func(*Usage)) Evidence {
		u := calm()
		change(&u)
		return Evidence{Usage: &u}
	}
	link := func(c LinkCheck) Evidence {
		u := calm()
		c.Link = "r1 -- r2"
		return Evidence{Usage: &u, Links: []LinkCheck{c}}
	}
	const ms = time.Millisecond
	for _, c := range []struct {
		name string
		e    Evidence
		want Level
		code string
	}{
		{"calm", with(func(*Usage) {}), Good, ""},
		{"unwatched", Evidence{}, Doubtful, "unwatched"},
		{"not looked at", Evidence{Usage: &Usage{}}, Doubtful, "unwatched"},
		{"another site", with(func(u *Usage) { u.Sites = map[string]SiteUsage{"m1": {Usage: calm()}} }), Good, ""},
		{"another site is full", with(func(u *Usage) {
			m1 := calm()
			m1.Busy = 0.999
			u.Sites = map[string]SiteUsage{"m1": {Usage: m1}}
		}), Bad, "cpu"},
		{"another site was not looked at", with(func(u *Usage) { u.Sites = map[string]SiteUsage{"m1": {}} }), Doubtful, "unwatched"},
		{"virtual machines", with(func(u *Usage) { u.Accelerators = map[string]string{"h1": "kvm"} }), Good, ""},
		{"an emulated processor", with(func(u *Usage) { u.Accelerators = map[string]string{"h1": "kvm", "h2": Emulated} }), Doubtful, "emulated"},
		{"an emulated processor elsewhere", with(func(u *Usage) {
			m1 := calm()
			m1.Accelerators = map[string]string{"h3": Emulated}
			u.Sites = map[string]SiteUsage{"m1": {Usage: m1}}
		}), Doubtful, "emulated"},
		{"at the limit", with(func(u *Usage) { u.Busy = 0.90 }), Good, ""},
		{"busy", with(func(u *Usage) { u.Busy = 0.97 }), Doubtful, "cpu"},
		{"full", with(func(u *Usage) { u.Busy = 0.999 }), Bad, "cpu"},
		{"too short to say", with(func(u *Usage) {
			u.Busy, u.Pressure, u.SoftIRQCore, u.Steal = stats.None, stats.None, stats.None, stats.None
		}), Good, ""},
		{"softirq", with(func(u *Usage) { u.SoftIRQCore = 0.7 }), Doubtful, "softirq"},
		{"pressure", with(func(u *Usage) { u.Pressure = 0.9 }), Bad, "pressure"},
		{"stolen", with(func(u *Usage) { u.Steal = 0.05 }), Doubtful, "steal"},
		{"queue", with(func(u *Usage) { u.RunQueue = 5 }), Doubtful, "run-queue"},
		{"gap", with(func(u *Usage) { u.LongestGap = 0.9 }), Doubtful, "gap"},
		{"clock", with(func(u *Usage) { u.Clock.Largest = 0.5 }), Bad, "clock"},
		{"backlog", with(func(u *Usage) { u.Softnet = &Softnet{Processed: 1_000_000, Dropped: 1} }), Doubtful, "backlog"},
		{"backlog, many", with(func(u *Usage) { u.Softnet = &Softnet{Processed: 1000, Dropped: 100} }), Bad, "backlog"},
		{"squeezed", with(func(u *Usage) { u.Softnet = &Softnet{Processed: 1000, Squeezed: 1e6} }), Doubtful, "squeezed"},

		{"delay as asked", link(LinkCheck{AskedDelay: 10 * ms, GivenDelay: 10*ms + 400*time.Microsecond}), Good, ""},
		{"delay off by a wake-up", link(LinkCheck{AskedDelay: ms, GivenDelay: ms + 150*time.Microsecond}), Good, ""},
		{"delay off", link(LinkCheck{AskedDelay: 10 * ms, GivenDelay: 11 * ms}), Doubtful, "link-delay"},
		{"delay far off", link(LinkCheck{AskedDelay: 10 * ms, GivenDelay: 5 * ms}), Bad, "link-delay"},
		{"delay where none is", link(LinkCheck{GivenDelay: ms}), Bad, "link-delay"},
		{"rate as asked", link(LinkCheck{AskedRate: 1e8, GivenRate: 0.97e8}), Good, ""},
		{"rate too low", link(LinkCheck{AskedRate: 1e8, GivenRate: 0.9e8}), Doubtful, "link-rate"},
		{"rate too high", link(LinkCheck{AskedRate: 1e8, GivenRate: 1.2e8}), Bad, "link-rate"},
		{"loss as asked", link(LinkCheck{AskedLoss: 0.01, Lost: 110, Sent: 10000}), Good, ""},
		{"too few packets to tell", link(LinkCheck{AskedLoss: 0.01, Lost: 0, Sent: 50}), Good, ""},
		{"no loss where 1 % is asked", link(LinkCheck{AskedLoss: 0.01, Lost: 0, Sent: 10000}), Bad, "link-loss"},
		{"a little too much", link(LinkCheck{AskedLoss: 0.01, Lost: 140, Sent: 10000}), Doubtful, "link-loss"},
		{"loss where none is asked", link(LinkCheck{Lost: 1, Sent: 10000}), Doubtful, "drops"},
		{"loss of what is damaged", link(LinkCheck{MostLoss: 0.02, Lost: 110, Sent: 10000}), Good, ""},
		{"no loss of what is damaged", link(LinkCheck{MostLoss: 0.02, Lost: 0, Sent: 10000}), Good, ""},
		{"more loss than is damaged", link(LinkCheck{MostLoss: 0.02, Lost: 400, Sent: 10000}), Bad, "link-loss"},
		{"loss of 15 of 1,726 datagrams", link(LinkCheck{Lost: 15, Sent: 1726}), Bad, "drops"},
		{"nothing twice", link(LinkCheck{Came: 10000}), Good, ""},
		{"one twice", link(LinkCheck{Came: 10000, Twice: 1}), Doubtful, "link-duplicates"},
		{"many twice", link(LinkCheck{Came: 10000, Twice: 1995}), Bad, "link-duplicates"},
		{"as many twice as asked", link(LinkCheck{Came: 10000, AskedTwice: 0.2, Twice: 1995}), Good, ""},
		{"fewer twice than asked", link(LinkCheck{Came: 10000, AskedTwice: 0.2, Twice: 1000}), Bad, "link-duplicates"},
		{"few overtaken", link(LinkCheck{Came: 10000, Overtaken: 9}), Good, ""},
		{"some overtaken", link(LinkCheck{Came: 10000, Overtaken: 50}), Doubtful, "link-order"},
		{"many overtaken", link(LinkCheck{Came: 10000, Overtaken: 4000}), Bad, "link-order"},
		{"half are late", link(LinkCheck{Late: 500, Timed: 1000}), Doubtful, "link-late"},
		{"few are late", link(LinkCheck{Late: 50, Timed: 1000}), Good, ""},
		{"half are late on a busy machine", Evidence{Usage: with(func(u *Usage) { u.Pressure = 0.2 }).Usage, Links: []LinkCheck{{Late: 500, Timed: 1000}}}, Good, ""},
		{"half are late, and the kernel does not tell the pressure", Evidence{Usage: with(func(u *Usage) { u.Pressure = stats.None }).Usage, Links: []LinkCheck{{Late: 500, Timed: 1000}}}, Doubtful, "link-late"},
		{"late on average", link(LinkCheck{Spread: 2500 * time.Microsecond}), Doubtful, "link-late"},
		{"hardly late on average", link(LinkCheck{Spread: 400 * time.Microsecond}), Good, ""},
		{"what a probe says itself", Evidence{Usage: with(func(*Usage) {}).Usage, Other: []Reason{{Bad, "sender", "too slow"}}}, Bad, "sender"},
		{"drops of nobody knows how many", Evidence{Usage: with(func(*Usage) {}).Usage, Drops: []Drops{{Where: "s1:2", Packets: 7}}}, Doubtful, "drops"},
		{"many drops", Evidence{Usage: with(func(*Usage) {}).Usage, Drops: []Drops{{Where: "s1:2", Packets: 7, Of: 100}}}, Bad, "drops"},
	} {
		got := Judge(c.e, DefaultLimits)
		codes := ""
		for _, r := range got.Reasons {
			codes += r.Code
		}
		if got.Level != c.want || codes != c.code {
			t.Errorf("%s: %+v, want %s %s", c.name, got, c.want, c.code)
		}
	}
}

// TestJudgeProperties proves that a machine that is worse in one thing never gets a better verdict,
// that a verdict without reasons is good and one with reasons is not, and that the level is that of
// the worst reason.
func TestJudgeProperties(t *testing.T) {
	share := rapid.Float64Range(0, 1)
	rapid.Check(t, func(t *rapid.T) {
		u := calm()
		u.Busy, u.Steal, u.Pressure = stats.Float(share.Draw(t, "busy")), stats.Float(share.Draw(t, "steal")), stats.Float(share.Draw(t, "pressure"))
		u.RunQueue, u.Clock.Largest = 20*share.Draw(t, "queue"), math.Pow(share.Draw(t, "clock"), 8)
		before := Judge(Evidence{Usage: &u}, DefaultLimits)
		worst := Good
		for _, r := range before.Reasons {
			worst = worse(worst, r.Level)
			if r.Level == Good || r.Text == "" || strings.Contains(r.Text, "%!") {
				t.Fatalf("reason %+v", r)
			}
		}
		if worst != before.Level {
			t.Fatalf("%+v", before)
		}
		u.Busy += stats.Float(share.Draw(t, "more"))
		u.RunQueue += share.Draw(t, "longer")
		after := Judge(Evidence{Usage: &u}, DefaultLimits)
		if worse(before.Level, after.Level) != after.Level {
			t.Fatalf("worse, and judged better: %+v, then %+v", before, after)
		}
		both := Worst(before, after, before)
		if both.Level != after.Level || len(both.Reasons) > len(before.Reasons)+len(after.Reasons) {
			t.Fatalf("together: %+v", both)
		}
	})
}

// TestDropsOfUsage proves that of what was dropped while somebody watched only what was not
// expected counts against a figure, by its share; and that counters that were not there before, or
// began anew, tell nothing.
func TestDropsOfUsage(t *testing.T) {
	before := []DropCounter{{"port a", 5, 100, false}, {"queue b", 0, 0, true}, {"renewed", 50, 90, false}}
	after := []DropCounter{{"port a", 6, 1099, false}, {"queue b", 900, 1000, true}, {"renewed", 3, 10, false}, {"new", 7, 7, false}}
	u := Usage{Looks: 1, Drops: DropsBetween(before, after)}
	if want := []Drops{{"port a", 1, 1000, false}, {"queue b", 900, 1900, true}}; !reflect.DeepEqual(u.Drops, want) {
		t.Fatalf("%+v, want %+v", u.Drops, want)
	}
	v := Judge(Evidence{Usage: &u}, DefaultLimits)
	if len(v.Reasons) != 1 || v.Level != Doubtful || v.Reasons[0].Code != "drops" || !strings.Contains(v.Reasons[0].Text, "port a dropped 1 packets") {
		t.Errorf("%+v", v)
	}
	u.Drops[0].Packets = 2
	if v = Judge(Evidence{Usage: &u}, DefaultLimits); v.Level != Bad {
		t.Errorf("0.2 %% is %+v", v)
	}
}

// TestDropsUnread proves that counters of drops that could not be read, or were gone at the end,
// are told to be missing, and that the others count.
func TestDropsUnread(t *testing.T) {
	readings := [][]DropCounter{{{"port a", 5, 100, false}, {"port b", 5, 100, false}, {"port c", 0, 1, false}, {"port d", 0, 1, false}, {"port e", 0, 1, false}}, {{"port a", 6, 200, false}}}
	errs := []error{errors.New("the first cannot be read"), errors.New("the second cannot be read")}
	n := 0
	w, err := StartWatch(WatchOptions{NoPerf: true, Drops: func() ([]DropCounter, error) { n++; return readings[n-1], errs[n-1] }})
	if err != nil {
		t.Fatal(err)
	}
	u := w.Stop()
	missing := strings.Join(u.Missing, "\n")
	for _, want := range append(errs, errors.New("port b; port c; port d; and 1 more")) {
		if !strings.Contains(missing, want.Error()) {
			t.Errorf("nothing says %q: %q", want, missing)
		}
	}
	if want := []Drops{{"port a", 1, 101, false}}; !reflect.DeepEqual(u.Drops, want) {
		t.Errorf("%+v, want %+v", u.Drops, want)
	}
	if err := gone(readings[1], readings[0]); err != nil {
		t.Error(err)
	}
}
