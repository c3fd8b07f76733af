// Package disjoint keeps disjoint sets (union-find).
package disjoint

// Sets says which members are in the same set. At first, each is in a set of its own.
type Sets[T comparable] map[T]T

// Of returns the representative of the set that a member is in.
func (s Sets[T]) Of(member T) T {
	for {
		next, joined := s[member]
		if !joined || next == member {
			return member
		}
		if after, joined := s[next]; joined {
			s[member], next = after, after // halves the path for later calls
		}
		member = next
	}
}

// Join unites the sets of two members, and says whether they were different sets.
func (s Sets[T]) Join(a, b T) bool {
	x, y := s.Of(a), s.Of(b)
	if x != y {
		s[x] = y
	}
	return x != y
}
