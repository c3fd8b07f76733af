package cli

import (
	"os"
	"testing"
)

// TestUnread proves that a keyboard puts back only what was read from it since the last program
// began, by any count: the end of that where a program has read the rest, all of it, and nothing
// where more is asked for.
func TestUnread(t *testing.T) {
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	defer to.Close()
	k, err := newKeyboard(int(from.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	types := func(text string) {
		if _, err := to.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	reads := func(want string) {
		t.Helper()
		buf := make([]byte, len(want))
		if n, err := k.Read(buf); string(buf[:n]) != want || err != nil {
			t.Fatalf("it reads %q, %v, want %q", buf[:n], err, want)
		}
	}
	k.start()
	types("abcdef")
	reads("abc")
	k.Unread(4)
	reads("def")
	k.Unread(4)
	reads("cdef")
	k.Unread(0)
	types("g")
	reads("g")

	k.start()
	k.Unread(1) // g was another program's
	types("hij")
	reads("hij")
	k.Unread(2)

	k.start() // a program is given what is there
	if typed := k.take(); string(typed) != "ij" {
		t.Fatalf("typed ahead is %q, want ij", typed)
	}
	types("k")
	reads("k")
	k.Unread(1 << 30)
	k.Unread(-1)
	k.Unread(3)
	if left := k.take(); string(left) != "ijk" {
		t.Errorf("what was typed ahead and is unread is %q, want ijk", left)
	}
}
