package cli

import (
	"bytes"
	"testing"

	"trivet.dev/trivet/bench/verify"
)

// TestShowLinks proves how what verify has measured is shown: units and digits, intervals of
// shares, and only those columns that some link needs.
func TestShowLinks(t *testing.T) {
	number := func(v float64) *float64 { return &v }
	check := func(what string, asked, got float64) verify.Check {
		return verify.Check{What: what, Asked: asked, Got: number(got), Verdict: verify.OK}
	}
	share := func(what string, asked, got, off float64) verify.Check {
		c := check(what, asked, got)
		c.Low, c.High = number(got-off), number(got+off)
		return c
	}
	direction := func(from, to string, checks ...verify.Check) verify.Direction {
		return verify.Direction{From: from, To: to, Checks: append([]verify.Check{check(verify.Up, 1, 1)}, checks...)}
	}
	usual := func(what string) verify.Check { return verify.Check{What: what, Verdict: verify.OK} }
	fewest := verify.Link{Directions: [2]verify.Direction{
		direction("h1", "s1", check(verify.Rate, 1e9, 0.99912e9), check(verify.Delay, 0, 0.0000123), share(verify.Loss, 0, 0, 0.001), usual(verify.Reorder), check(verify.MTU, 1500, 1500),
			verify.Check{What: verify.Queue, Asked: 4000, Default: true, Verdict: verify.OK}),
		direction("s1", "h1", check(verify.Rate, 25e6, 24.98765e6), check(verify.Delay, 0.01, 0.0100543), share(verify.Loss, 0.001, 0.00123, 0.0004)),
	}}
	down := verify.Direction{From: "s2", To: "s3", Checks: []verify.Check{{What: verify.Up, Verdict: verify.OK}}}
	atLeast := check(verify.Rate, 5e5, 4e5)
	atLeast.AtLeast, atLeast.Verdict = true, verify.Untold
	wrong := check(verify.Duplicate, 0, 0.5)
	wrong.Verdict = verify.Wrong
	all := verify.Link{Directions: [2]verify.Direction{
		direction("s2", "r1", atLeast, check(verify.Delay, 0.25, 0.2512), check(verify.Jitter, 0.002, 0.00213), usual(verify.Loss), share(verify.Reorder, 0.25, 0.2533, 0.01),
			wrong, check(verify.Corrupt, 0.01, 0.0123), check(verify.Queue, 100, 103.4), check(verify.MTU, 1400, 1400)),
		down,
	}}
	for _, c := range []struct {
		links []verify.Link
		want  string
	}{
		{[]verify.Link{fewest}, `DIRECTION   RATE               DELAY           LOSS
h1 → s1     1 / 0.999 Gbit/s   – / 0.01 ms     – / 0 %               ok
s1 → h1     25 / 25 Mbit/s     10 / 10.05 ms   0.1 / 0.123 ±0.04 %   ok
`},
		{[]verify.Link{all, fewest}, `DIRECTION   RATE                 DELAY            JITTER        LOSS                  REORDER          DUPLICATE   CORRUPT      QUEUE         MTU
s2 → r1     500 / ≥ 400 kbit/s   250 / 251.2 ms   2 / 2.13 ms   –                     25 / 25.3 ±1 %   – / 50 %    1 / 1.23 %   100 / 103.4   1400 / 1400   ✗ duplicate
s2 → s3     –                    –                –             –                     –                –           –            –             –             ok (down)
h1 → s1     1 / 0.999 Gbit/s     – / 0.01 ms      –             – / 0 %               –                –           –            4000 / –      1500 / 1500   ok
s1 → h1     25 / 25 Mbit/s       10 / 10.05 ms    –             0.1 / 0.123 ±0.04 %   –                –           –            –             –             ok
`},
	} {
		var out bytes.Buffer
		a := &app{out: &out}
		a.showLinks(&verify.Result{Links: c.links})
		if out.String() != c.want {
			t.Errorf("got\n%s\nwant\n%s", out.String(), c.want)
		}
	}
}
