package servers

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"trivet.dev/trivet/internal/disk"
)

// Place is the directory of a program's files in a lab, and the user it runs as. The directory
// belongs to root, so that only root can replace what root writes there; the program writes in
// Data.
type Place struct {
	Dir      string
	UID, GID uint32
}

// nobody owns no files.
const nobody = 65534

// UserOf returns the user of a package, or nobody if there is none.
func UserOf(name string) (uid, gid uint32) {
	u, err := user.Lookup(name)
	if err != nil {
		return nobody, nobody
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	group, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if errors.Join(err, err2) != nil || id == 0 {
		return nobody, nobody
	}
	return uint32(id), uint32(group)
}

// OrdinaryUser returns the user that programs of a user's lab run as: that user, or nobody instead
// of root.
func OrdinaryUser(uid int) (uint32, uint32) {
	if uid == 0 {
		return nobody, nobody
	}
	gid := uint64(nobody)
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		if id, err := strconv.ParseUint(u.Gid, 10, 32); err == nil {
			gid = id
		}
	}
	return uint32(uid), uint32(gid)
}

// Data is the directory in which the program may write.
func (p Place) Data() string { return filepath.Join(p.Dir, "data") }

// File is a file that Write has written.
func (p Place) File(name string) string { return filepath.Join(p.Dir, name) }

// Make makes the directories, which may be there already.
func (p Place) Make() error {
	for _, dir := range []string{p.Dir, p.Data()} {
		if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return errors.Join(os.Chmod(p.Dir, 0o711), os.Chmod(p.Data(), 0o700), os.Lchown(p.Data(), int(p.UID), int(p.GID)))
}

// Write writes a file that only the program and root may read.
func (p Place) Write(name string, text []byte) error {
	return disk.ReplaceFor(int(p.UID), int(p.GID), 0o600, p.File(name), text)
}

// secret returns a random word, which is made once and kept in a file.
func (p Place) secret(name string) (string, error) {
	if text, err := os.ReadFile(p.File(name)); err == nil && len(text) > 0 {
		return string(text), nil
	}
	var b [24]byte
	_, _ = rand.Read(b[:]) // does not fail
	word := hex.EncodeToString(b[:])
	return word, p.Write(name, []byte(word))
}

// Certify gives the program a certificate (cert.pem and key.pem), unless it has one.
func (p Place) Certify(a *Authority, name string) error {
	if _, err := os.Stat(p.File("cert.pem")); err == nil {
		return nil
	}
	certificate, key, err := a.Issue(name)
	if err != nil {
		return err
	}
	return errors.Join(p.Write("key.pem", key), p.Write("cert.pem", certificate))
}

// Authority returns the file with the certificate of the lab's authority, which is next to the
// places.
func (p Place) Authority() string { return filepath.Join(filepath.Dir(p.Dir), authorityFile) }

// Trust writes that file if the authority is elsewhere.
func (p Place) Trust(certificate []byte) error {
	return disk.ReplaceFor(0, 0, 0o644, p.Authority(), certificate)
}

// Command returns a command that runs there, as its user, in a session of its own, with no
// environment but the given one.
func (p Place) Command(program string, args, env []string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = p.Data()
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
		"HOME=" + p.Data()}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: p.UID, Gid: p.GID}
	}
	return cmd
}
