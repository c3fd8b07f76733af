package topology

// sets are disjoint sets of the numbers below a limit, each named by one of its members
// (union-find, with path halving).
type sets []int

// newSets returns n sets of one number each.
func newSets(n int) sets {
	s := make(sets, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// of returns the name of the set that i is in.
func (s sets) of(i int) int {
	for s[i] != i {
		s[i] = s[s[i]]
		i = s[i]
	}
	return i
}

// join makes one set of those that i and j are in.
func (s sets) join(i, j int) { s[s.of(i)] = s.of(j) }
