package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/internal/dirlock"
)

// gone fails the test unless nothing is left of the lab, and cleans up what is.
func gone(t *testing.T, s State) {
	t.Helper()
	if now, err := Load(s.Name); !errors.Is(err, ErrNone) {
		t.Errorf("a lab is left: %v %v", now.Status, err)
		if err := now.Stop(context.Background(), func(Progress) {}); err != nil {
			t.Error(err)
		}
	}
}

// TestDownOfStarting proves that a lab whose daemon is just being started is not mistaken for one
// whose daemon has died: nobody removes it behind the daemon's back; the daemon is asked as soon as
// it can be, and takes the lab down itself.
func TestDownOfStarting(t *testing.T) {
	s := newState(t, "starting", "minimal")
	if err := os.Mkdir(Dir(s.Name), 0o755); err != nil {
		t.Fatal(err)
	}
	mine, err := lock(t.Context(), s.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	old, err := Load(s.Name)
	if err != nil || old.Status != Starting {
		t.Errorf("a lab that starts is %s: %v", old.Status, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := old.Stop(ctx, func(Progress) {}); !errors.Is(err, context.Canceled) {
		t.Fatal("down does not wait for the daemon of a lab that starts: ", err)
	}
	if _, err := Resume(ctx, s.Name, func(Progress) {}); !errors.Is(err, context.Canceled) {
		t.Fatal("resume does not wait for the daemon of a lab that starts: ", err)
	}
	daemon, err := startDaemon(s.Name, mine)
	if err != nil {
		t.Fatal(err)
	}
	mine.Close()
	if err := old.Stop(context.Background(), func(Progress) {}); err != nil {
		t.Error(err)
	}
	if err := <-daemon; err != nil {
		t.Error("the daemon has not ended by itself: ", err)
	}
	gone(t, s)
}

// TestStartBesideAnother proves that a lab is not started in the directory of another of the same
// name, which stays as it is.
func TestStartBesideAnother(t *testing.T) {
	s := newState(t, "another", "minimal")
	if err := errors.Join(os.Mkdir(Dir(s.Name), 0o755), s.Save()); err != nil {
		t.Fatal(err)
	}
	second := s
	second.Created = s.Created.Add(time.Hour)
	client, err := Start(t.Context(), second, func(Progress) {})
	if err == nil || !strings.Contains(err.Error(), "there is already a lab") {
		t.Error("a lab is started beside one of its name: ", err)
	}
	if err == nil {
		defer func() { _ = client.Down(context.Background(), func(Progress) {}) }()
	}
	if now, err := read(s.Name); err != nil || !now.Created.Equal(s.Created) || now.PID != 0 {
		t.Errorf("the lab that was there is another: %v %d %v", now.Created, now.PID, err)
	}
}

// TestInterruptedWhenUp proves that a lab whose start is interrupted at the moment it comes up is
// removed, and not reported as up.
func TestInterruptedWhenUp(t *testing.T) {
	s := newState(t, "late", "minimal")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := Start(ctx, s, func(p Progress) {
		if p.End && p.Error == "" {
			cancel()
		}
	})
	if err == nil || !strings.Contains(err.Error(), "interrupted") || !strings.Contains(err.Error(), "nothing is left") {
		t.Error("a start that was interrupted says: ", err)
	}
	gone(t, s)
}

// TestReasonForTheSlow proves that a lab that cannot come up gives its reason even to a command
// that asks only after the failure.
func TestReasonForTheSlow(t *testing.T) {
	s := newState(t, "slow", "minimal")
	failing := filepath.Join(RunDir(), "failing")
	s.Topology.Node("h1").Start = "echo >" + failing + "; exit 3"
	daemon, err := s.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for wait := 500 * time.Millisecond; wait > 0; { // usually long enough for the lab to fail before that command asks
		select {
		case err := <-daemon:
			t.Fatal("the daemon has ended before it was asked: ", err)
		case <-time.After(10 * time.Millisecond):
		}
		if _, err := os.Stat(failing); err == nil {
			wait -= 10 * time.Millisecond
		}
	}
	client, err := waitForDaemon(s, daemon)
	if err == nil {
		err = client.Follow(t.Context(), func(Progress) {})
	}
	if err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Error("a lab whose start command fails says: ", err)
	}
	<-daemon
	gone(t, s)
}

// TestDownAfterTheEnd proves that a daemon which is about to end does not begin to take its lab
// down.
func TestDownAfterTheEnd(t *testing.T) {
	state := newState(t, "ended", "minimal")
	d := newDaemon(state, Targets[OnThisMachine])
	d.exit()
	if err := d.down(func(string, int, int) { t.Error("the daemon takes the lab down") }); err == nil {
		t.Error("it is said to be down")
	}
}

// TestEndOfLongProgress proves that the end is reported even by a lab that has had more steps than
// are kept.
func TestEndOfLongProgress(t *testing.T) {
	l := newProgressLog()
	for range maxProgress + 1 {
		l.note("something")
	}
	l.end(nil)
	if steps, _ := l.since(0); len(steps) != maxProgress+1 || !steps[maxProgress].End {
		t.Errorf("%d steps are kept, and no end", len(steps))
	}
}

// TestLoadOfBeginning proves that a lab that has just been begun, of which there is only an empty
// directory, is not mistaken for one whose daemon has died: Load waits until the lab's lock shows
// that somebody is at work.
func TestLoadOfBeginning(t *testing.T) {
	s := newState(t, "begin", "minimal")
	run, err := dirlock.Make(t.Context(), RunDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(Dir(s.Name), 0o755); err != nil {
		t.Fatal(err)
	}
	seen := make(chan State, 1)
	go func() {
		now, _ := Load(s.Name)
		seen <- now
	}()
	select {
	case now := <-seen:
		t.Fatalf("a lab that is just begun is %q", now.Status)
	case <-time.After(100 * time.Millisecond): // too short a wait lets a wrong program pass, but never fails a right one
	}
	mine, err := lock(t.Context(), s.Name)
	if err != nil {
		t.Fatal(err)
	}
	run.Close()
	if now := <-seen; now.Status != Starting {
		t.Errorf("a lab that is begun is %q", now.Status)
	}
	mine.Close()
	if now, err := Load(s.Name); err != nil || now.Status != Orphaned {
		t.Errorf("a directory that nobody has locked is %q, %v", now.Status, err)
	}
}
