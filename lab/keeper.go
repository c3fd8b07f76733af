package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/process"
)

// A part whose head is gone is taken down by its daemon, after a while (Part.Keep). Its keeper does
// that when the daemon, too, has died: what is at another machine must not wait for somebody to
// look there.

// KeeperCommand is the argument that makes the program the keeper of a part.
const KeeperCommand = "__keeper"

// startKeeper starts the part's keeper, which ends when there is one already.
func (d *daemon) startKeeper() error {
	part := d.state().Part
	if part == nil || part.Keep == 0 {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, KeeperCommand, d.state().Name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the part's keeper: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	return nil
}

// againAfter is when a part is taken down once more by itself where that has failed: a full disk
// may be mended by then.
const againAfter = time.Minute

// RunKeeper waits until a part is gone, and takes it down if it has been without a daemon for as
// long as it may be without its head.
func RunKeeper(name string) error {
	return keeper{name: name, every: time.Second, again: againAfter, found: func() {}}.run()
}

type keeper struct {
	name         string
	every, again time.Duration // it looks; it tries again
	found        func()        // is called when it knows which lab it is of
}

func (k keeper) run() error {
	mine, err := os.OpenFile(filepath.Join(Dir(k.name), "keeper"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer mine.Close()
	if err := unix.Flock(int(mine.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil // there is one
	}
	var alone, created time.Time // since when it is alone; which lab it is
	for ; ; time.Sleep(k.every) {
		s, err := Load(k.name)
		if err == nil && created.IsZero() {
			created = s.Created
			k.found()
		}
		switch {
		case errors.Is(err, ErrNone):
			return nil
		case err != nil: // it is being written
		case s.Part == nil || !s.Created.Equal(created):
			return nil // it is gone, or about to be; there may be another lab of that name by now
		case s.Status != Orphaned:
			alone = time.Time{}
			// Else a command has the lab, or is about to.
			if daemon, err := process.Command(s.PID); err == nil && s.Alive() {
				process.Wait(daemon)
			}
		case alone.IsZero():
			alone = time.Now()
		case time.Since(alone) > time.Duration(s.Part.Keep):
			if err = s.Stop(context.Background(), func(Progress) {}); err == nil {
				return nil
			}
			k.note(err)
			time.Sleep(k.again)
		}
	}
}

// note writes an error to the log of the part's daemon: a keeper has none of its own.
func (k keeper) note(err error) {
	log, failed := os.OpenFile(filepath.Join(Dir(k.name), "daemon.log"), os.O_APPEND|os.O_WRONLY, 0)
	if failed != nil {
		return
	}
	defer log.Close()
	fmt.Fprintln(log, time.Now().Format(time.RFC3339), "taking the part down, whose daemon has died:", err)
}
