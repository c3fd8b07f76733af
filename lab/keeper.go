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

// A part whose head is gone is taken down by its daemon after a while (Part.Keep). The keeper is a
// process that does so when that daemon has died as well, so that nothing is left on another
// machine, where nobody may look.

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

// againAfter is the interval at which taking a part down is retried: a full disk may have room by
// then.
const againAfter = time.Minute

// RunKeeper waits until a part is gone, and takes it down if it has been without a daemon for as
// long as it may be without its head.
func RunKeeper(name string) error {
	return keeper{name: name, every: time.Second, again: againAfter, found: func() {}}.run()
}

type keeper struct {
	name         string
	every, again time.Duration // poll interval; interval of retries
	found        func()        // called when the keeper has identified its lab
}

func (k keeper) run() error {
	mine, err := os.OpenFile(filepath.Join(Dir(k.name), "keeper"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer mine.Close()
	if err := unix.Flock(int(mine.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil // another keeper runs
	}
	var alone, created time.Time // since when it has no daemon; when its lab was created
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
			// Otherwise a command has the lab's lock, or is about to take it.
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
