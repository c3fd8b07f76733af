// Package parallel calls functions in parallel.
package parallel

import (
	"errors"
	"runtime"
	"sync"
)

// Each calls f for the items on several goroutines and joins the errors.
func Each[T any](items []T, f func(T) error) error {
	var group sync.WaitGroup
	errs := make([]error, len(items))
	next := make(chan int)
	for range min(2*runtime.NumCPU(), len(items)) {
		group.Go(func() {
			for i := range next {
				errs[i] = f(items[i])
			}
		})
	}
	for i := range items {
		next <- i
	}
	close(next)
	group.Wait()
	return errors.Join(errs...)
}

// All calls f for all items at once, as is right where f mostly waits, and joins the errors.
func All[T any](items []T, f func(T) error) error {
	var group sync.WaitGroup
	errs := make([]error, len(items))
	for i := range items {
		group.Go(func() { errs[i] = f(items[i]) })
	}
	group.Wait()
	return errors.Join(errs...)
}
