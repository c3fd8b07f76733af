package container

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/test/generated"
	"trivet.dev/trivet/topology"
)

// TestGenerated proves that what waits in containers was compiled from the source that is here.
func TestGenerated(t *testing.T) { generated.Check(t, "waiter", "amd64", "arm", "arm64", "waiter.c") }

// TestGates proves that a container's program begins when it is let, not before, and once, with its
// words and its environment, and is looked for in the directories of PATH, and no others; that one
// that cannot begin is told with the reason; and that a lab that comes back does not wait for one
// that has begun.
func TestGates(t *testing.T) {
	program, err := waiters.ReadFile("waiter/" + runtime.GOARCH)
	if err != nil {
		t.Skip(err)
	}
	files := t.TempDir()
	for name, is := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"wait": {string(program), 0o755}, "a/mine": {"no program", 0o644}, "b/mine": {"#!/bin/sh\necho $0 $1 $2 $X > " + files + "/said\n", 0o755},
		"a/data": {"no program", 0o644}, "a/broken": {"\x7fELF", 0o755}, "here": {"#!/bin/sh\n", 0o755},
	} {
		file := filepath.Join(files, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(is.text), is.mode)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ program, wrong string }{
		{"/bin/true", ""}, {"mine", ""}, {"nonesuch", "nonesuch cannot be run: it is not in the container"}, {"/etc/passwd", "/etc/passwd cannot be run: permission denied"},
		{"data", "permission denied"}, {"broken", "exec format error"}, {"here", "not in the container"}, {"", "not in the container"},
		{"/" + strings.Repeat("x", 5000), "file name too long"}, {strings.Repeat("x", 5000), "not in the container"},
	} {
		dir := filepath.Join(t.TempDir(), "gates")
		if err := makeGates(dir); err != nil {
			t.Fatal(err)
		}
		waits := exec.Command(filepath.Join(files, "wait"), dir, c.program, "one", "two")
		waits.Dir, waits.Env = files, []string{"X=three", "PATH=:/nowhere:" + files + "/a:" + files + "/b"}
		if err := waits.Start(); err != nil {
			t.Fatal(err)
		}
		began, err := open(t.Context(), dir, c.program, always)
		if !began || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Fatalf("%s: began %v: %v", c.program, began, err)
		}
		if err := waits.Wait(); (err == nil) != (c.wrong == "") {
			t.Errorf("%s: %v", c.program, err)
		}
		if c.wrong != "" {
			continue
		}
		if began, err := open(t.Context(), dir, c.program, always); began || err != nil {
			t.Errorf("it begins again: %v, %v", began, err)
		}
	}
	if said, err := os.ReadFile(filepath.Join(files, "said")); string(said) != files+"/b/mine one two three\n" {
		t.Errorf("the program has said %q, %v", said, err)
	}
	dir := filepath.Join(t.TempDir(), "gates")
	if err := makeGates(dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := open(ctx, dir, "true", always); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits there, and: %v", err)
	}
	if _, err := open(t.Context(), dir, "true", func() bool { return false }); err == nil || !strings.Contains(err.Error(), "has ended before") {
		t.Errorf("who was to wait is gone, and: %v", err)
	}
}

// TestGateHeldOpen proves that a program that keeps the pipe open by which it is known to have
// begun, and writes nothing to it, is not waited for: its lab could not be changed meanwhile.
func TestGateHeldOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gates")
	if err := makeGates(dir); err != nil {
		t.Fatal(err)
	}
	waits, err := os.OpenFile(filepath.Join(dir, begin), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer waits.Close()
	holds, err := os.OpenFile(filepath.Join(dir, began), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer holds.Close()
	since := time.Now()
	opened, err := open(t.Context(), dir, "true", always)
	if took := time.Since(since); !opened || err != nil || took < mostAnswer || took > 10*mostAnswer {
		t.Errorf("after %v: opened %v, %v", took, opened, err)
	}
}

func always() bool { return true }

// TestCommand proves that what a topology says of a container's program takes the place of what the
// image says, as with docker run: an entrypoint also of the image's arguments.
func TestCommand(t *testing.T) {
	image := program{entrypoint: []string{"/entry"}, cmd: []string{"a", "b"}}
	for _, c := range []struct {
		entrypoint, cmd topology.Words
		want            string
	}{
		{nil, nil, "/entry a b"}, {nil, topology.Words{"c"}, "/entry c"},
		{topology.Words{"/mine"}, nil, "/mine"}, {topology.Words{"/mine"}, topology.Words{"c"}, "/mine c"},
	} {
		n := &topology.Node{Container: topology.Container{Image: "x", Entrypoint: c.entrypoint, Cmd: c.cmd}}
		if got, err := image.command(n); err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%v, %v: %v, %v; want %s", c.entrypoint, c.cmd, got, err, c.want)
		}
	}
	if _, err := (program{}).command(&topology.Node{Container: topology.Container{Image: "x"}}); err == nil {
		t.Error("an image without a program has one")
	}
}

// TestPack proves that an image is built from what is in its directory: files with what they hold
// and their modes, directories, and links as links, wherever those lead; and nothing else.
func TestPack(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	for _, err := range []error{
		os.WriteFile(secret, []byte("secret"), 0o600),
		os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM x"), 0o644),
		os.Mkdir(filepath.Join(dir, "sub"), 0o755),
		os.WriteFile(filepath.Join(dir, "sub", "run"), []byte("#!/bin/sh"), 0o755),
		os.Symlink(secret, filepath.Join(dir, "link")),
		unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := pack(&out, dir); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r)
		got = append(got, strings.Join([]string{h.Name, h.FileInfo().Mode().String(), h.Linkname, string(text)}, " "))
	}
	want := []string{"Dockerfile -rw-r--r--  FROM x", "link Lrwxrwxrwx " + secret + " ", "sub drwxr-xr-x  ", "sub/run -rwxr-xr-x  #!/bin/sh"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestImageOf proves that an image that is built has a name that engines take, the same for a
// directory each time, and another for another one.
func TestImageOf(t *testing.T) {
	name := func(dir string) string { return imageOf(&topology.Node{Container: topology.Container{Build: dir}}) }
	for _, dir := range []string{"/a/Web Server!", "/", "/ä", "/x/.."} {
		if got := name(dir); got != name(dir) || strings.ToLower(got) != got || !strings.HasPrefix(got, "localhost/trivet-") || strings.ContainsAny(got, " !ä") {
			t.Errorf("%s: %s", dir, got)
		}
	}
	if name("/a/web") == name("/b/web") {
		t.Error("two directories share an image")
	}
}

// TestSameUsers proves that a container whose root is not the machine's is not entered.
func TestSameUsers(t *testing.T) {
	if err := sameUsers("/proc/self"); err != nil {
		t.Error(err)
	}
	other := exec.Command("sleep", "60")
	other.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	if err := other.Start(); err != nil {
		t.Skip("no user namespaces here: ", err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	pid := other.Process.Pid
	if _, err := enter(pid, process.Started(pid)); err == nil || !strings.Contains(err.Error(), "users of their own") {
		t.Errorf("entered: %v", err)
	}
}

// TestProtected proves that a command in a container is started as this program where nobody can
// write to it, once for all commands of a process; and that the program runs from there, with the
// words and, marked, the variables of the command.
func TestProtected(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if os.Getenv("GOGC") == strings.TrimPrefix(fewCollections, "GOGC=") { // this test, as the program
		t.Logf("entered %q with %q", os.Args[len(os.Args)-7:], process.Meant(os.Environ()))
		return
	}
	cmd := exec.Command("true", "-x")
	cmd.Env = []string{"A=2"}
	if err := enclose(cmd, &running{pid: 12, started: 34, user: "web", dir: "/srv", env: []string{"A=1"}}); err != nil {
		t.Fatal(err)
	}
	var on unix.Statfs_t
	if err := unix.Statfs(cmd.Path, &on); err != nil || on.Flags&unix.ST_RDONLY == 0 {
		t.Errorf("its mount is not read-only: %#x, %v", on.Flags, err)
	}
	if again, err := protected(); err != nil || again != cmd.Path {
		t.Errorf("the next one is started from %s: %v", again, err)
	}
	cmd.Args = append([]string{"trivet", "-test.run=^TestProtected$", "-test.v"}, cmd.Args[1:]...)
	out, err := cmd.CombinedOutput()
	if want := `entered ["__enter" "12" "34" "web" "/srv" "true" "-x"] with ["A=2"]`; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRights proves that what a container's processes may do is read as the kernel says it.
func TestRights(t *testing.T) {
	dir := t.TempDir()
	status := func(text string) (rights, error) {
		if err := os.WriteFile(filepath.Join(dir, "status"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return rightsOf(dir)
	}
	if r, err := status("CapEff:\tffff\nCapBnd:\t00000000a80435fb\nNoNewPrivs:\t1\n"); err != nil || r != (rights{0xa80435fb, true}) {
		t.Errorf("%+v, %v", r, err)
	}
	for _, text := range []string{"", "CapBnd:\tx\n", "CapEff:\t1\n"} {
		if r, err := status(text); err == nil {
			t.Errorf("%q: %+v", text, r)
		}
	}
}

// TestOfLab proves that what runc keeps of a container is the lab's only if its gates are: not by a
// path or a word of the lab's anywhere else in it, nor by a name that begins alike.
func TestOfLab(t *testing.T) {
	for text, want := range map[string]bool{
		`{"config": {"mounts": [{"source": "/x", "destination": "/y"}, {"source": "/run/lab/containers/h1/gates", "destination": "/.trivet/gates"}]}}`:                        true,
		`{"config": {"mounts": [{"source": "/run/lab2/containers/h1/gates", "destination": "/.trivet/gates"}, {"source": "/run/lab/containers/h1", "destination": "/mnt"}]}}`: false,
		`{"config": {"mounts": [{"source": "/run/lab/containersX/h1/gates", "destination": "/.trivet/gates"}]}}`:                                                              false,
		`{"config": {"args": ["/run/lab/containers/h1/gates", "/.trivet/gates"]}}`:                                                                                            false,
		`{"config": `: false, ``: false,
	} {
		file := filepath.Join(t.TempDir(), "state.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := ofLab(file, "/run/lab"); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestIgnored proves that what a directory has engines ignore is not sent to them, nor what is
// below it unless that is an exception, but what they read themselves is; that a file beside the
// Dockerfile of its name comes first; and that a file that cannot be read so is said.
func TestIgnored(t *testing.T) {
	lay := func(ignore map[string]string) string {
		dir := t.TempDir()
		files := map[string]string{"Dockerfile": "FROM x", "a.log": "", "sub/b.log": "", "sub/keep.log": "", "sub/c": "", ".git/config": "", "tmp/x/y": ""}
		maps.Copy(files, ignore)
		for name, text := range files {
			if err := errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	for _, c := range []struct {
		ignore map[string]string
		want   string
	}{
		{nil, ".git .git/config Dockerfile a.log sub sub/b.log sub/c sub/keep.log tmp tmp/x tmp/x/y"},
		{map[string]string{".dockerignore": "\xef\xbb\xbf# what is not sent\n.git\n *.log \n/tmp/x\n**/c\n"}, ".dockerignore Dockerfile sub sub/b.log sub/keep.log tmp"},
		{map[string]string{".dockerignore": "**/*.log\n!sub/keep.log\nDockerfile\n.dockerignore\n.git\n"}, ".dockerignore Dockerfile sub sub/c sub/keep.log tmp tmp/x tmp/x/y"},
		{map[string]string{".dockerignore": "*\n!sub/c\n"}, ".dockerignore Dockerfile sub/c"},
		{map[string]string{".dockerignore": "*", "Dockerfile.dockerignore": ".git\ntmp\nsub\n*.log\n.dockerignore"}, "Dockerfile Dockerfile.dockerignore"},
		{map[string]string{".dockerignore": "a[", "sub/.dockerignore": "*"}, "error: .dockerignore: syntax error in pattern"},
		{map[string]string{".dockerignore": "!"}, "error: .dockerignore: illegal exclusion pattern: \"!\""},
		{map[string]string{".dockerignore": strings.Repeat("x\n", 40000)}, "error: .dockerignore: is no file of at most 64 KiB"},
	} {
		dir, archive := lay(c.ignore), &bytes.Buffer{}
		var got []string
		if err := pack(archive, dir); err != nil {
			got = []string{"error:", strings.TrimPrefix(err.Error(), dir+"/")}
		}
		for in := tar.NewReader(archive); len(got) == 0 || got[0] != "error:"; {
			header, err := in.Next()
			if err != nil {
				break
			}
			got = append(got, header.Name)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q: sent are %s, and should be %s", c.ignore, strings.Join(got, " "), c.want)
		}
	}
	out := lay(map[string]string{"../outside": "*"})
	if err := os.Symlink("../outside", filepath.Join(out, ".dockerignore")); err != nil {
		t.Fatal(err)
	}
	if err := pack(io.Discard, out); err == nil || !strings.Contains(err.Error(), ".dockerignore") {
		t.Errorf("a link that leads out of the directory is followed: %v", err)
	}
}

// TestIgnoredUnread proves that a directory that is ignored is not even read, unless the file has
// exceptions: one that nobody may read does not fail what is built.
func TestIgnoredUnread(t *testing.T) {
	for ignore, sent := range map[string]bool{"secret\n": true, "secret\n!Dockerfile\n": false, "other\n": false} {
		dir := t.TempDir()
		secret := filepath.Join(dir, "secret")
		if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM x"), 0o644),
			os.WriteFile(filepath.Join(dir, ".dockerignore"), []byte(ignore), 0o644), os.Mkdir(secret, 0)); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // it ends as somebody whom permissions concern
			unix.SetfsuidRetUid(65534)
			done <- pack(io.Discard, dir)
		}()
		if err := <-done; (err == nil) != sent || err != nil && !errors.Is(err, os.ErrPermission) {
			t.Errorf("%q: %v", ignore, err)
		}
	}
}

// TestStale proves that a name of a network is taken for one of a lab that is gone by where the
// link leads from its own directory, and only if that is below the directory of labs.
func TestStale(t *testing.T) {
	labs, names := filepath.Join(t.TempDir(), "labs"), t.TempDir()
	t.Chdir(t.TempDir()) // links are not seen from there
	there := filepath.Join(labs, "a", "ns", "net", "h1")
	if err := errors.Join(os.MkdirAll(there, 0o755), os.WriteFile(filepath.Join(names, "file"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]bool{there: false, filepath.Join(labs, "b/ns/net/h1"): true, "/missing": false, "missing": false,
		"file": false, labs + "/../missing": false, labs + "2/missing": false, labs: false} {
		name := filepath.Join(names, "link")
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
		if got := stale(name, labs); got != want {
			t.Errorf("%s: %v", to, got)
		}
		if err := errors.Join(removeName(name), removeName(name)); err != nil { // the second time it is gone
			t.Error(err)
		}
	}
	if stale(filepath.Join(names, "file"), labs) || stale(filepath.Join(names, "none"), labs) {
		t.Error("what is no link is a lab's")
	}
}
