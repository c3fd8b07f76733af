package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// as prepares a command that another user gives.
func (m *machine) as(uid uint32, args ...string) *exec.Cmd {
	cmd := m.command(trivet, args...)
	cmd.Dir = "/"
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	return cmd
}

// TestAccess proves that a lab obeys root and the user who brought it up with sudo, who needs root
// for no more, and nobody else.
func TestAccess(t *testing.T) {
	t.Parallel()
	const owner, other = 65534, 65533
	m := newMachine(t)
	copyTo := "/run/trivet-program" // where every user may run it
	m.sh("cp " + trivet + " " + copyTo + " && chmod 755 " + copyTo)
	before := m.snapshot()
	up := m.command(trivet, "up", "--name", m.name, "minimal", "--datapath", "bridge")
	up.Env = append(up.Env, "SUDO_UID=65534")
	if r := m.do(up); r.code != 0 {
		t.Fatal(r)
	}
	if mode := m.sh("stat -c '%a %u' /run/trivet/" + m.name + "/daemon.sock"); mode != "600 65534" {
		t.Errorf("the socket's mode and owner: %s", mode)
	}
	if modes := strings.TrimSpace(m.sh("cd /run/trivet/" + m.name + " && stat -c '%n %a %u' . state.json owner.json")); modes != ". 711 0\nstate.json 600 0\nowner.json 600 65534" {
		t.Errorf("modes and owners of the lab's directory, its state, which root acts by, and its owner's copy: %s", modes)
	}
	const somebody = "setpriv --reuid 65533 --regid 65533 --clear-groups "
	if seen := m.sh("cd /run/trivet/" + m.name + "; " + somebody + "sh -c 'ls . ns ns/net names; cat names/hosts names/resolv.conf state.json' 2>/dev/null || true"); seen != "" {
		t.Error("another user sees of the lab: ", seen)
	}
	contains(t, m.exec("h1", somebody+"cat /etc/hosts /etc/resolv.conf"), "10.0.0.2 h2", "no name server")
	user := func(uid uint32, args ...string) result {
		cmd := m.as(uid, args...)
		cmd.Path, cmd.Args[0] = copyTo, copyTo
		return m.do(cmd)
	}
	if r := user(other, "exec", "--lab", m.name, "h1", "true"); r.code == 0 {
		t.Error("another user runs programs in the lab: ", r)
	} else {
		contains(t, r.err, "belongs to another user")
	}
	if r := user(other, "down", m.name); r.code == 0 {
		t.Error("another user takes the lab down: ", r)
	}
	if r := user(other, "ls"); r.code != 0 || !strings.HasPrefix(r.out, "labs of other users: "+m.name+" (nobody)") {
		t.Error("another user is not told of the lab, or of more than its name: ", r)
	}
	eventually(t, "the owner verifies", func() bool { // a busy machine may not carry what it is to
		r := user(owner, "verify", "--quick")
		t.Log(r)
		return r.code == 0 || r.code == 6
	})
	contains(t, user(other, "verify", m.name).err, "belongs to another user (nobody); root can use it:")
	contains(t, user(other, "inspect").err, "none of the labs that are up is yours: "+m.name+" (nobody)")
	m.sh("chmod 777 /run/trivet/" + m.name + "/daemon.sock")
	peek := m.command("/usr/bin/python3", "-c", `import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
try:
    s.sendall(b"GET /v1/lab HTTP/1.0\r\n\r\n")
    print("bytes:", len(s.recv(100)))
except ConnectionError:
    print("bytes: 0")`, "/run/trivet/"+m.name+"/daemon.sock")
	peek.Dir, peek.SysProcAttr.Credential = "/", &syscall.Credential{Uid: other, Gid: other}
	if r := m.do(peek); strings.TrimSpace(r.out) != "bytes: 0" {
		t.Error("another user is answered on a socket whose mode has become lax: ", r)
	}
	for _, args := range []string{"ls", "ping --all --timeout 30s", "exec -n h1 -- true", "inspect", "link set s1-h1 delay=1ms"} {
		if r := user(owner, strings.Fields(args)...); r.code != 0 {
			t.Error("the owner: ", r)
		}
	}
	if r := user(owner, "up", "minimal"); r.code != 1 || !strings.Contains(r.err, "sudo") {
		t.Error("up without root should say that it needs root: ", r)
	}
	if r := user(owner, "down"); r.code != 0 {
		t.Error("the owner: ", r)
	}
	m.unchanged(before)
}

// otherVersion builds this program as another version of it.
func otherVersion(t *testing.T, version string) (file string) {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go to build another version with")
	}
	file = filepath.Join(t.TempDir(), version)
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-X trivet.dev/trivet/internal/version.Version="+version, "-o", file, "../../cmd/trivet")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// TestOtherVersion proves that a command of another version than the daemon says so instead of
// misunderstanding it, and that down works all the same.
func TestOtherVersion(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	other := otherVersion(t, "other")
	before := m.snapshot()
	m.up("minimal", "--datapath", "bridge")
	run := func(args ...string) result { return m.do(m.command(other, args...)) }
	for _, args := range []string{"ping --all", "exec -n h1 true", "inspect", "capture h1"} {
		r := run(strings.Fields(args)...)
		if r.code != 1 {
			t.Error("another version: ", r)
		}
		contains(t, r.err, "other", "trivet down")
	}
	contains(t, run("ls").out, m.name)
	if r := run("down"); r.code != 0 {
		t.Error(r)
	}
	m.unchanged(before)
}

// TestLocksOfOthers proves that a user who locks all that there is of labs to be locked holds up no
// command, and does not make a lab whose daemon has died look as if it were up.
func TestLocksOfOthers(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	m.up("minimal")
	var attackers []*exec.Cmd
	for _, dir := range []string{"/run/trivet", "/run/trivet/.lock", "/run/trivet/" + m.name} {
		attacker := m.command("flock", dir, "sleep", "600")
		attacker.Dir, attacker.SysProcAttr.Credential = "/", &syscall.Credential{Uid: 65534, Gid: 65534}
		must(t, m.start(attacker))
		attackers = append(attackers, attacker)
	}
	eventually(t, "the run directory is locked", func() bool { return m.do(m.command("flock", "--nonblock", "/run/trivet", "true")).code != 0 })
	m.ok("up", "--name", m.name+"-2", "minimal", "--datapath", "bridge")
	m.ok("down", m.name+"-2")
	m.killDaemon()
	contains(t, m.ok("ls"), "orphaned")
	m.ok("resume", m.name)
	contains(t, m.ok("down", m.name), "nothing left")
	for _, a := range attackers {
		_ = syscall.Kill(-a.Process.Pid, syscall.SIGKILL)
		wait(t, a)
	}
	eventually(t, "what attackers have started is gone", func() bool { return len(m.pids("sleep?60[0]")) == 0 })
	m.unchanged(before)
}
