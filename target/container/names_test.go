package container

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNames proves that the files that a container may write to in /etc have a file system of their
// own, also where a process was killed before it was mounted, or has left a full one, that this is
// gone when the container is, and what happens to the files when the lab's change: they are written
// anew in place, longer or shorter, if they are as they were; and stay whole if there is no room.
func TestNames(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := filepath.Join(t.TempDir(), "h1")
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	hosts, resolver := filepath.Join(dir, "hosts"), filepath.Join(dir, "resolv.conf")
	fill := func() {
		t.Helper()
		if err := os.WriteFile(resolver, make([]byte, 2<<20), 0o644); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("more than it may have: %v", err)
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil { // and killed
		t.Fatal(err)
	}
	for range 2 {
		if err := makeNames(dir, 1<<20); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(resolver); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("what was there before: %v", err)
		}
		fill()
	}
	long := strings.Repeat("10.0.0.1 h1\n", 1000)
	for _, c := range []struct {
		has, was, is, want string
		full               bool
	}{
		{has: "a", was: "a", is: long, want: long}, {has: long, was: long, is: "b", want: "b"}, {has: "", was: "", is: "b", want: "b"}, {has: "b", was: "b", is: "", want: ""},
		{has: "mine", was: "a", is: "b", want: "mine"}, {has: "ab", was: "a", is: "b", want: "ab"},
		{has: "a", was: "a", is: long, want: "a", full: true}, {has: long, was: long, is: "b", want: "b", full: true},
	} {
		if err := errors.Join(os.Truncate(resolver, 0), os.WriteFile(hosts, []byte(c.has), 0o644)); err != nil {
			t.Fatal(err)
		}
		if c.full {
			fill()
		}
		err := rewrite(hosts, []byte(c.was), []byte(c.is))
		if fails := c.full && len(c.is) > len(c.has); errors.Is(err, unix.ENOSPC) != fails || err != nil && !fails {
			t.Errorf("%.20q to %.20q: %v", c.was, c.is, err)
		}
		if text, err := os.ReadFile(hosts); err != nil || string(text) != c.want {
			t.Errorf("%.20q to %.20q: %.20q, %d bytes, %v", c.was, c.is, text, len(text), err)
		}
	}
	if err := os.Truncate(hosts, 7<<60); err != nil { // a hole
		t.Fatal(err)
	}
	if err := rewrite(hosts, []byte("a"), []byte("b")); err != nil {
		t.Error(err)
	}
	for what, make := range map[string]func() error{"link": func() error { return os.Symlink(resolver, hosts) }, "pipe": func() error { return unix.Mkfifo(hosts, 0o644) }} {
		if err := errors.Join(os.Remove(hosts), make()); err != nil {
			t.Fatal(err)
		}
		if err := rewrite(hosts, nil, []byte("b")); err == nil {
			t.Errorf("a %s is written to", what)
		}
	}
	for range 2 {
		if err := removeNames(dir); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}
}
