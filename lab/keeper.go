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

// RunKeeper waits until a part is gone, and takes it down if it has been without a daemon for as
// long as it may be without its head.
func RunKeeper(name string) error {
	mine, err := os.OpenFile(filepath.Join(Dir(name), "keeper"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer mine.Close()
	if err := unix.Flock(int(mine.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil // there is one
	}
	var alone time.Time // since when
	for ; ; time.Sleep(time.Second) {
		s, err := Load(name)
		switch {
		case errors.Is(err, ErrNone):
			return nil
		case err != nil: // it is being written
		case s.Status != Orphaned:
			alone = time.Time{}
			if daemon, err := process.Command(s.PID); err == nil {
				process.Wait(daemon)
			}
		case alone.IsZero():
			alone = time.Now()
		case time.Since(alone) > time.Duration(s.Part.Keep):
			return s.Stop(context.Background(), func(Progress) {})
		}
	}
}
