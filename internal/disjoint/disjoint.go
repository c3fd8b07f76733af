// Package disjoint keeps sets that have no member in common (union-find).
package disjoint

// Sets says which members are in one set. At first each is in one of its own.
type Sets[T comparable] map[T]T

// Of names the set that a member is in by one of its members.
func (s Sets[T]) Of(member T) T {
	for {
		next, joined := s[member]
		if !joined || next == member {
			return member
		}
		if after, joined := s[next]; joined {
			s[member], next = after, after // halves the way for those who come next
		}
		member = next
	}
}

// Join makes one set of those that two members are in, and says whether they were two.
func (s Sets[T]) Join(a, b T) bool {
	x, y := s.Of(a), s.Of(b)
	if x != y {
		s[x] = y
	}
	return x != y
}
