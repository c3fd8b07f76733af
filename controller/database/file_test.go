package database

import (
	"bufio"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writeUntilKilled is the other process of TestKilled: it writes, says which user flow is
// on the disk, and never ends.
func writeUntilKilled(path string) {
	d, err := Open(path, Options{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for i := 0; ; i++ {
		d.AddLoads([]Load{{Time: time.Now(), Switch: 1, Port: uint32(i)}})
		if err := d.keepFlow(i); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(i)
	}
}

func TestMain(m *testing.M) {
	if path := os.Getenv("TRIVET_TEST_DATABASE"); path != "" {
		writeUntilKilled(path)
	}
	os.Exit(m.Run())
}

// Proves that every user flow that was reported as written is there after kill -9, that the file
// is taken as it is, and that while the first process lived a second one was refused.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "TRIVET_TEST_DATABASE="+path)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	last := -1
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, err := fmt.Sscan(lines.Text(), &last); err != nil {
			t.Errorf("it says %q", lines.Text())
			break
		}
		if last == 20 {
			if _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), "another controller") {
				t.Errorf("a second controller opens it: %v", err)
			}
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = c.Wait()
	if last < 20 {
		t.Fatalf("it wrote %d", last)
	}
	if s, err := os.Stat(path + "-wal"); err != nil || s.Size() == 0 {
		t.Fatalf("the process left no log to recover from: %v", err)
	}
	d, log := open(t, path, Options{})
	flows, err := d.Store().List(t.Context(), "user/flow/")
	if err != nil || len(flows) <= last {
		t.Errorf("%d flows, %d were reported as written (%v)", len(flows), last+1, err)
	}
	if d.SetAside() != "" || log.String() != "" {
		t.Errorf("set aside: %q, log: %s", d.SetAside(), log)
	}
}

// Proves that a damaged file, whatever is damaged, is kept under another name and reported, and
// that the new one works.
func TestDamaged(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, path string){
		"no database": func(t *testing.T, path string) { write(t, path, 0, "this is some text, and more text than a header") },
		"header":      func(t *testing.T, path string) { write(t, path, 4, "light") },
		"pages":       func(t *testing.T, path string) { write(t, path, 4096*3, strings.Repeat("\xa5", 4096*3)) },
		"truncated": func(t *testing.T, path string) {
			if err := os.Truncate(path, 4096*4); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "db")
			d, _ := open(t, path, Options{})
			for i := range 300 {
				d.put(t, i)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			damage(t, path)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			d, log := open(t, path, Options{})
			if !strings.HasPrefix(d.SetAside(), path+".corrupt-") || !strings.Contains(log.String(), d.SetAside()) {
				t.Fatalf("kept as %q; the log says %q", d.SetAside(), log)
			}
			if after, err := os.ReadFile(d.SetAside()); err != nil || string(after) != string(before) {
				t.Errorf("what is kept is not what was there: %v", err)
			}
			d.put(t, 0)
			if flows := count(t, d, "SELECT count(*) FROM user_flows"); flows != 1 {
				t.Errorf("%d flows in the new file", flows)
			}
		})
	}
}

func write(t *testing.T, path string, at int64, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(text), at); err != nil {
		t.Fatal(err)
	}
}

// Proves that a file of a later version is kept, twice in the same second too.
func TestNewer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	kept := map[string]bool{}
	for range 2 {
		d, _ := open(t, path, Options{})
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		execute(t, path, "PRAGMA user_version = 1000")
		d, log := open(t, path, Options{})
		if !strings.HasPrefix(d.SetAside(), path+".newer-") || !strings.Contains(log.String(), "version 1000") {
			t.Fatalf("kept as %q; the log says %q", d.SetAside(), log)
		}
		if _, err := os.Stat(d.SetAside()); err != nil {
			t.Error(err)
		}
		kept[d.SetAside()] = true
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(kept) != 2 {
		t.Errorf("one has replaced the other: %v", kept)
	}
}

func execute(t *testing.T, path, text string) {
	t.Helper()
	db, err := sql.Open("sqlite", source(path))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(text); err != nil {
		t.Fatal(err)
	}
}

// Proves that another program's database is refused and left as it is, and that a directory that
// is not there is an error and no reason to begin anew.
func TestRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	execute(t, path, "CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("opened: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file has changed: %v", err)
	}
	if _, err := Open(filepath.Join(path+"-none", "db"), Options{}); err == nil {
		t.Error("opened in a directory that is not there")
	}
}

// Proves that a file is brought from version to version with what is in it, that a script
// that fails leaves the file as it was, and that scripts that the file has seen are not run again.
func TestMigrate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	d, _ := open(t, path, Options{})
	d.put(t, 0)
	scripts := append(migrations(), "ALTER TABLE kept ADD COLUMN owner TEXT NOT NULL DEFAULT 'nobody'")
	migrate := func(scripts ...string) (err error) {
		answer := make(chan error, 1)
		d.urgent <- request{func(w *writer) { // nothing else is written meanwhile
			w.do("COMMIT")
			err = w.migrate(scripts)
			w.do("BEGIN")
		}, answer}
		<-answer
		return err
	}
	if err := migrate(append(scripts, "CREATE TABLE half (x)", "CREATE TABLE half (x)")...); err == nil {
		t.Error("a script that fails is no error")
	}
	if n, v := count(t, d, "SELECT count(*) FROM sqlite_schema WHERE name = 'half'"), count(t, d, "PRAGMA user_version"); n != 0 || v != len(migrations()) {
		t.Errorf("half a change: %d tables, version %d", n, v)
	}
	for range 2 {
		if err := migrate(scripts...); err != nil {
			t.Fatal(err)
		}
	}
	if got := count(t, d, "SELECT count(*) FROM kept WHERE owner = 'nobody'"); got != 1 {
		t.Errorf("%d entries after the change", got)
	}
	if v := count(t, d, "PRAGMA user_version"); v != len(scripts) {
		t.Errorf("version %d", v)
	}
}
