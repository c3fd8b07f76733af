package lab

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestLastWords proves that everything a program printed is sent, even if the machine stalls after
// the program's end for longer than output is waited for; and that a process it left behind, which
// holds its output open and prints nothing, is not waited for.
func TestLastWords(t *testing.T) {
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()         // only at the end, as a program in the background may
	const printed = 60 << 10 // several reads, but no more than a pipe holds
	program := exec.Command("head", "-c", fmt.Sprint(printed), "/dev/zero")
	program.Stdout = to
	if err := program.Run(); err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	defer theirs.Close()
	s := &session{conn: ours}
	s.exited.Store(true)
	if err := from.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	go func() {
		s.copy(frameStdout, from)
		ours.Close()
	}()
	var got bytes.Buffer
	for {
		kind, content, err := readFrame(theirs)
		if err != nil {
			break
		}
		if kind != frameStdout {
			t.Errorf("a frame of kind %d", kind)
		}
		got.Write(content)
	}
	if got.Len() != printed {
		t.Errorf("of %d bytes that were printed %d came", printed, got.Len())
	}
}
