package disjoint

import (
	"math/rand/v2"
	"testing"
)

// TestSets proves, by comparison with a search of all joins, that members are in the same set
// exactly when a chain of joins connects them, and that Join says whether it did something.
func TestSets(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		const members = 12
		sets := Sets[int]{}
		var colour [members]int
		for i := range colour {
			colour[i] = i
		}
		for range random.IntN(20) {
			a, b := random.IntN(members), random.IntN(members)
			was, ok := colour[a], colour[b]
			if got := sets.Join(a, b); got != (was != ok) {
				t.Fatalf("joining %d and %d says %v", a, b, got)
			}
			for i := range colour {
				if colour[i] == was {
					colour[i] = ok
				}
			}
			for a := range members {
				for b := range members {
					if got := sets.Of(a) == sets.Of(b); got != (colour[a] == colour[b]) {
						t.Fatalf("%d and %d in one set: %v", a, b, got)
					}
				}
			}
		}
	}
}
