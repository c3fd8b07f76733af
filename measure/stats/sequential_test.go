package stats

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

var fifths = []float64{0.2, 0.4, 0.6, 0.8, 1}

// TestBoundaries proves the integration by published tables: the boundaries of the spending
// functions of Lan and DeMets for five looks, two-sided 5 % (so 2.5 % of each side; Reboussin,
// DeMets, Kim and Lan, "Computations for Group Sequential Boundaries Using the Lan–DeMets Spending
// Function Method", 2000, whose program is R's ldbounds).
func TestBoundaries(t *testing.T) {
	for _, c := range []struct {
		what     string
		spending Spending
		alpha    float64
		want     []float64
	}{
		{"O'Brien–Fleming, 2.5 %", LikeOBrienFleming, 0.025, []float64{4.8769, 3.3569, 2.6803, 2.2898, 2.0310}},
		{"Pocock, 2.5 %", likePocock, 0.025, []float64{2.4380, 2.4268, 2.4101, 2.3966, 2.3859}},
		{"one look", LikeOBrienFleming, 0.025, []float64{1.9600}},
	} {
		looks := fifths
		if len(c.want) == 1 {
			looks = []float64{1}
		}
		got := Sequential{c.spending, looks}.Boundaries(c.alpha)
		for i, want := range c.want {
			if math.Abs(got[i]-want) > 2e-4 {
				t.Errorf("%s: %v, want %v", c.what, got, c.want)
				break
			}
		}
	}
}

// TestBoundariesOfTables proves the same by Jennison and Turnbull's tables 2.1 and 2.3 (2000): a
// function that spends what Pocock's test of five and of ten looks does (2.413, 2.555), and O'Brien
// and Fleming's (2.040 and 2.087 times the root of how many looks there are over which it is),
// spends 5 % in all.
func TestBoundariesOfTables(t *testing.T) {
	for _, c := range []struct {
		looks    int
		constant float64
		falls    bool
	}{{5, 2.413, false}, {10, 2.555, false}, {5, 2.040, true}, {10, 2.087, true}} {
		var looks []float64
		for i := range c.looks {
			looks = append(looks, float64(i+1)/float64(c.looks))
		}
		spent := 0.0 // by the boundaries themselves, which are the inverse of what is tested
		var at, weighed []float64
		before := 0.0
		for _, share := range looks {
			z := c.constant
			if c.falls {
				z /= math.Sqrt(share)
			}
			root := math.Sqrt(share - before)
			if at == nil {
				spent += distuv.UnitNormal.Survival(z)
			}
			for i, y := range at {
				spent += weighed[i] * distuv.UnitNormal.Survival((z*math.Sqrt(share)-y)/root)
			}
			at, weighed = densityBelow(z*math.Sqrt(share), share, root, at, weighed)
			before = share
		}
		if math.Abs(2*spent-0.05) > 1.5e-4 {
			t.Errorf("%+v spends %.5f", c, 2*spent)
		}
	}
}

// TestLevel proves what the nominal level is of: that of the only look is alpha; later ones have
// more, and the last less than alpha, the less the more looks there were; a look directly after
// another, and very many, are computed as well; and what cannot be looks is refused.
func TestLevel(t *testing.T) {
	level := func(looks ...float64) float64 { return Sequential{LikeOBrienFleming, looks}.Level(0.05) }
	if got := level(1); math.Abs(got-0.05) > 1e-9 {
		t.Errorf("one look: %v", got)
	}
	before := 0.0
	for i := range fifths {
		got := level(fifths[:i+1]...)
		if got <= before || got >= 0.05 {
			t.Errorf("look %d has %v, the one before %v", i+1, got, before)
		}
		before = got
	}
	one, two := Sequential{LikeOBrienFleming, fifths}.Boundaries(0.05), 2*distuv.UnitNormal.Survival(2.0310)
	if want := min(two, distuv.UnitNormal.Survival(one[4])); math.Abs(before-want) > 2e-5 || before > two {
		t.Errorf("the last of five has %v, want %v", before, want)
	}
	var many []float64
	for i := range 100 {
		many = append(many, float64(i+1)/100)
	}
	if got := level(many...); got > before || got < 0.02 {
		t.Errorf("the last of 100 has %v", got)
	}
	close, apart := level(0.5, 0.50001), level(0.5, 0.6)
	if close <= 0 || close >= apart {
		t.Errorf("a look directly after another has %v, a later one %v", close, apart)
	}
	for _, bad := range [][]float64{nil, {0}, {0.5, 0.5}, {0.6, 0.5}, {1.1}, {math.NaN()}, make([]float64, 101)} {
		if (Sequential{LikeOBrienFleming, bad}).Check() == nil {
			t.Errorf("%v pass", bad)
		}
	}
	if err := (Sequential{LikeOBrienFleming, fifths}).Check(); err != nil {
		t.Error(err)
	}
}

// TestErrorRate proves by drawing what there is no table of: that who looks again and again at 5 %
// finds a difference that is none in far more than 5 % of all experiments; that at the levels of
// the looks it is at most 5 %, for normal statistics of one side and of two, and where several are
// read together, each at a level of its own; and that by t of few values, which is as the levels
// of normal ones have it, it is hardly more, also for equivalence at the edge of the margin.
func TestErrorRate(t *testing.T) {
	const most, experiments = 20, 50_000
	looks := []int{6, 8, 10, 12, 14, 16, 18, 20}
	var shares, whole, fourth []float64
	for _, n := range looks {
		shares = append(shares, float64(n)/most)
		s := Sequential{LikeOBrienFleming, shares}
		whole, fourth = append(whole, s.Level(0.05)), append(fourth, s.Level(0.05/4))
	}
	critical := func(p float64, n int) float64 {
		if n == 0 {
			return distuv.UnitNormal.Quantile(1 - p)
		}
		return spread{freedom: float64(n - 1)}.student().Quantile(1 - p)
	}
	limits := map[string][]float64{} // of the statistic, by look
	for i, n := range looks {
		for what, limit := range map[string]float64{"naive": critical(0.025, 0), "one side": critical(whole[i], 0), "two sides": critical(whole[i]/2, 0), "any of four": critical(fourth[i]/2, 0),
			"naive, t": critical(0.025, n), "one side, t": critical(whole[i], n), "two sides, t": critical(whole[i]/2, n), "equivalence, t": critical(whole[i], n)} {
			limits[what] = append(limits[what], limit)
		}
	}
	rng := rand.New(rand.NewPCG(3, 7))
	found := map[string]float64{}
	for range experiments {
		seen := map[string]bool{}
		for draw := range 4 {
			sum, squares, look := 0.0, 0.0, 0
			for n := 1; n <= most; n++ {
				v := rng.NormFloat64()
				sum, squares = sum+v, squares+v*v
				if n != looks[look] {
					continue
				}
				mean := sum / float64(n)
				z, e := mean*math.Sqrt(float64(n)), math.Sqrt((squares-sum*mean)/float64(n-1)/float64(n))
				over := func(what string, statistic float64) {
					seen[what] = seen[what] || statistic > limits[what][look]
				}
				if over("any of four", math.Abs(z)); draw == 0 {
					over("naive", math.Abs(z))
					over("one side", z)
					over("two sides", math.Abs(z))
					over("naive, t", math.Abs(mean/e))
					over("one side, t", mean/e)
					over("two sides, t", math.Abs(mean/e))
					over("equivalence, t", min(-mean, mean+4)/e) // from 0 to −4 is within the margin: the true one is at an edge
				}
				look++
			}
		}
		for what, is := range seen {
			if is {
				found[what] += 1.0 / experiments
			}
		}
	}
	t.Log(found)
	chance := 3 * math.Sqrt(0.05*0.95/experiments)
	for what := range limits {
		got := found[what]
		switch {
		case strings.HasPrefix(what, "naive"):
			if got < 0.12 {
				t.Errorf("looking %d times at 5 %% (%s) finds only %.4f", len(looks), what, got)
			}
		case got < 0.035:
			t.Errorf("%s: only %.4f", what, got)
		case strings.HasSuffix(what, "t") && got > 0.055, !strings.HasSuffix(what, "t") && got > 0.05+chance:
			t.Errorf("%s: %.4f, which is more than 5 %%", what, got)
		}
	}
}

// likePocock spends about the same at each look: its boundaries are close to Pocock's (1977). It is
// α₂* of Lan and DeMets.
func likePocock(alpha, share float64) float64 { return alpha * math.Log(1+(math.E-1)*share) }
