// Package lists makes something of the elements of a list: another list, a set, an index, a number.
package lists

// Of is what f makes of each element, in their order; nil of an empty list.
func Of[T, R any](list []T, f func(T) R) []R {
	if len(list) == 0 {
		return nil
	}
	out := make([]R, len(list))
	for i, x := range list {
		out[i] = f(x)
	}
	return out
}

// Where has the elements for which ok holds, in their order; nil where there are none.
func Where[T any](list []T, ok func(T) bool) (out []T) {
	for _, x := range list {
		if ok(x) {
			out = append(out, x)
		}
	}
	return out
}

// First is the first element for which ok holds; zero where there is none.
func First[T any](list []T, ok func(T) bool) (none T) {
	for _, x := range list {
		if ok(x) {
			return x
		}
	}
	return none
}

// Count says for how many elements ok holds.
func Count[T any](list []T, ok func(T) bool) (n int) {
	for _, x := range list {
		if ok(x) {
			n++
		}
	}
	return n
}

// Set has the keys of all elements; it can be written to.
func Set[T any, K comparable](list []T, key func(T) K) map[K]bool {
	out := make(map[K]bool, len(list))
	for _, x := range list {
		out[key(x)] = true
	}
	return out
}

// By has the elements by their keys, the last of those with the same; it can be written to.
func By[T any, K comparable](list []T, key func(T) K) map[K]T {
	out := make(map[K]T, len(list))
	for _, x := range list {
		out[key(x)] = x
	}
	return out
}
