package database

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// applicationID marks our files (PRAGMA application_id): "trvt".
const applicationID = 0x74727674

//go:embed schema/*.sql
var schema embed.FS

// migrations returns the scripts, the n-th of which upgrades a file from version n to n+1. PRAGMA
// user_version counts the scripts applied.
func migrations() []string {
	names, err := fs.Glob(schema, "schema/*.sql")
	if err != nil {
		panic(err) // the pattern is right
	}
	number := func(name string) int {
		n, _ := strconv.Atoi(strings.TrimSuffix(path.Base(name), ".sql"))
		return n
	}
	slices.SortFunc(names, func(a, b string) int { return number(a) - number(b) })
	scripts := make([]string, len(names))
	for i, name := range names {
		b, _ := schema.ReadFile(name)
		scripts[i] = string(b)
	}
	return scripts
}

// migrate applies the missing scripts, all or none.
func (w *writer) migrate(scripts []string) error {
	version, err := w.pragma("user_version")
	if err != nil {
		return err
	}
	if version > len(scripts) {
		return &unusableError{suffix: "newer",
			problem: fmt.Errorf("its version %d is of a later Trivet; this one supports versions up to %d", version,
				len(scripts))}
	}
	if version == len(scripts) {
		return nil
	}
	return w.transaction(func(w *writer) {
		for i, script := range append(slices.Clone(scripts[version:]),
			fmt.Sprintf("PRAGMA user_version = %d; PRAGMA application_id = %d", len(scripts), applicationID)) {
			if _, err := w.conn.ExecContext(context.Background(), script); err != nil {
				w.fail(fmt.Errorf("upgrade it from version %d to %d, step %d: %w", version, len(scripts), i+1, err))
				return
			}
		}
	})
}

// check finds damaged files, and files of other programs.
func (w *writer) check() error {
	var damage string
	if err := w.conn.QueryRowContext(context.Background(), "PRAGMA quick_check(1)").Scan(&damage); err != nil {
		return err
	}
	if damage != "ok" {
		return &unusableError{suffix: "corrupt", problem: errors.New(strings.ReplaceAll(damage, "\n", " "))}
	}
	id, err := w.pragma("application_id")
	if err != nil {
		return err
	}
	var tables int
	if err := w.conn.QueryRowContext(context.Background(),
		"SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return err
	}
	if id != applicationID && tables > 0 {
		return errors.New("it belongs to another program; choose another file")
	}
	return nil
}

func (w *writer) pragma(name string) (value int, err error) {
	err = w.conn.QueryRowContext(context.Background(), "PRAGMA "+name).Scan(&value)
	return value, err
}

// unusableError means that the file cannot be used, through no fault of the user.
type unusableError struct {
	suffix  string // of the name to which the file is renamed
	problem error
}

func (e *unusableError) Error() string { return e.problem.Error() }
func (e *unusableError) Unwrap() error { return e.problem }

// unusable wraps SQLite's errors that mean a damaged file in an unusableError.
func unusable(err error) error {
	if code := codeOf(err); code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB {
		return &unusableError{suffix: "corrupt", problem: err}
	}
	return err
}

// codeOf returns SQLite's primary result code; 0: the error is not SQLite's.
func codeOf(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return sqlite3.SQLITE_OK
}

// setAside renames a database and its side files, and returns the new name.
func setAside(path, suffix string) (aside string, err error) {
	aside = path + "." + suffix + "-" + time.Now().UTC().Format("20060102T150405Z")
	for i, base := 2, aside; ; i++ {
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			break
		}
		aside = fmt.Sprintf("%s-%d", base, i)
	}
	if err := os.Rename(path, aside); err != nil {
		return "", err
	}
	for _, part := range []string{"-wal", "-shm"} {
		if err := os.Rename(path+part, aside+part); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return aside, nil
}

// lockFile excludes other controllers, but not readers. The lock is on a separate file, because
// SQLite's own locks end when any descriptor of the database is closed.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path+"-lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", path, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("database %s: another controller uses it; choose another file: %w", path, err)
	}
	return f, nil
}
