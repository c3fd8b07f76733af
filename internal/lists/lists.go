// Package lists has the usual functions on slices that package slices lacks.
package lists

// Map returns f of each element, in order; nil for an empty list.
func Map[T, R any](list []T, f func(T) R) []R {
	if len(list) == 0 {
		return nil
	}
	out := make([]R, len(list))
	for i, x := range list {
		out[i] = f(x)
	}
	return out
}

// Filter returns the elements for which ok holds, in order; nil if there are none.
func Filter[T any](list []T, ok func(T) bool) (out []T) {
	for _, x := range list {
		if ok(x) {
			out = append(out, x)
		}
	}
	return out
}

// Find returns the first element for which ok holds; zero if there is none.
func Find[T any](list []T, ok func(T) bool) (none T) {
	for _, x := range list {
		if ok(x) {
			return x
		}
	}
	return none
}

// Count returns the number of elements for which ok holds.
func Count[T any](list []T, ok func(T) bool) (n int) {
	for _, x := range list {
		if ok(x) {
			n++
		}
	}
	return n
}

// Set returns the keys of all elements, as a map that the caller may modify.
func Set[T any, K comparable](list []T, key func(T) K) map[K]bool {
	out := make(map[K]bool, len(list))
	for _, x := range list {
		out[key(x)] = true
	}
	return out
}

// Index returns the elements by their keys, the last of several with the same key, as a map that
// the caller may modify.
func Index[T any, K comparable](list []T, key func(T) K) map[K]T {
	out := make(map[K]T, len(list))
	for _, x := range list {
		out[key(x)] = x
	}
	return out
}
