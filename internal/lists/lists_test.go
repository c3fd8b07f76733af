package lists

import (
	"maps"
	"slices"
	"strconv"
	"testing"
)

// TestMap proves that a list keeps its order, and that an empty one becomes nil, which is what a
// loop that appends to nothing leaves and what JSON writes as null.
func TestMap(t *testing.T) {
	if got := Map([]int{3, 1, 2}, strconv.Itoa); !slices.Equal(got, []string{"3", "1", "2"}) {
		t.Error(got)
	}
	if got := Map([]int{}, strconv.Itoa); got != nil {
		t.Errorf("%#v", got)
	}
}

// TestFilter proves that those are chosen, found and counted for which something holds, and that
// there is nothing where it holds for none.
func TestFilter(t *testing.T) {
	odd := func(n int) bool { return n%2 == 1 }
	if got := Filter([]int{4, 3, 2, 1}, odd); !slices.Equal(got, []int{3, 1}) {
		t.Error(got)
	}
	if got := Find([]int{4, 3, 2, 1}, odd); got != 3 {
		t.Error(got)
	}
	if got := Count([]int{4, 3, 2, 1}, odd); got != 2 {
		t.Error(got)
	}
	if got, n := Filter([]int{2}, odd), Count([]int{2}, odd); got != nil || n != 0 || Find([]int{2}, odd) != 0 {
		t.Errorf("%#v, %d", got, n)
	}
}

// TestSetAndIndex prove that each key is there once, that the last element with a key is kept, and
// that what is made of nothing can be written to.
func TestSetAndIndex(t *testing.T) {
	length := func(s string) int { return len(s) }
	words := []string{"a", "bc", "de"}
	if got := Set(words, length); !maps.Equal(got, map[int]bool{1: true, 2: true}) {
		t.Error(got)
	}
	if got := Index(words, length); !maps.Equal(got, map[int]string{1: "a", 2: "de"}) {
		t.Error(got)
	}
	Set(nil, length)[1], Index(nil, length)[1] = true, "a"
}
