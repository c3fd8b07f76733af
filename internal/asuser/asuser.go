// Package asuser accesses files with the rights of the user who asked for it, which with sudo is
// the one who called sudo: so root follows no link, and reads or replaces no file, that this user
// could not. Programs are started with that user's rights by Credential.
package asuser

import (
	"errors"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Do runs f, which only accesses files and starts nothing, with the rights of the user who called
// sudo; without sudo, with the process's.
func Do(f func() error) error {
	uid, err := strconv.Atoi(os.Getenv("SUDO_UID"))
	if os.Geteuid() != 0 || err != nil || uid <= 0 {
		return f()
	}
	return As(uid, f)
}

// As runs f, which only accesses files and starts nothing, with the rights of a user, if that is
// another one and this process is root.
func As(uid int, f func() error) error {
	if os.Geteuid() != 0 || uid <= 0 {
		return f()
	}
	gid, groups := groupsOf(uid)
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, now another user's, ends with the goroutine
		err := become(uid, gid, groups)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// Credential returns the credential for starting a program as a user, with no other rights; nil if
// this process already runs as that user, or is not root.
func Credential(uid int) *syscall.Credential {
	if os.Geteuid() != 0 || uid <= 0 {
		return nil
	}
	gid, groups := groupsOf(uid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: groups}
}

// groupsOf returns the groups of a user from the user database, or else only the one that sudo has
// passed.
func groupsOf(uid int) (gid int, groups []uint32) {
	gid, err := strconv.Atoi(os.Getenv("SUDO_GID"))
	if err != nil || os.Getenv("SUDO_UID") != strconv.Itoa(uid) { // it is another user's
		gid = uid
	}
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		if n, err := strconv.Atoi(u.Gid); err == nil && os.Getenv("SUDO_UID") != strconv.Itoa(uid) {
			gid = n
		}
		ids, _ := u.GroupIds()
		for _, id := range ids {
			if n, err := strconv.ParseUint(id, 10, 32); err == nil {
				groups = append(groups, uint32(n))
			}
		}
	}
	return gid, groups
}

// become changes the thread's rights for files only: see setfsuid(2). Its groups can be changed for
// a single thread only by a direct system call.
func become(uid, gid int, groups []uint32) error {
	var list unsafe.Pointer
	if len(groups) > 0 {
		list = unsafe.Pointer(&groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(list), 0); errno != 0 {
		return errno
	}
	if err := errors.Join(unix.Setfsgid(gid), unix.Setfsuid(uid)); err != nil {
		return err
	}
	if is, err := unix.SetfsuidRetUid(-1); err != nil || is != uid { // it does not report failures itself
		return errors.New("cannot take the rights of the user who called sudo")
	}
	return nil
}
