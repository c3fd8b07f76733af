//go:build linux

// Package inside runs functions in network namespaces.
package inside

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Namespace runs f in the network namespace that a file keeps ("": the process's own), on a thread
// of its own. The thread ends with f, and so do processes that f has started with a parent-death
// signal.
func Namespace(path string, f func() error) error {
	if path == "" {
		return onThread(f)
	}
	ns, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", path, errors.Unwrap(err))
	}
	defer ns.Close()
	return File(ns, f)
}

// File is Namespace for an open file.
func File(ns *os.File, f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network namespace %s: %w", ns.Name(), err)
		}
		return f()
	})
}

// New makes a network namespace without a name: it ends when the returned file is closed and
// nothing else uses it.
func New() (ns *os.File, err error) {
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	return ns, err
}

func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		// And never unlocked: no other goroutine may run on a thread that is in another namespace.
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}
