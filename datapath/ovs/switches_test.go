package ovs

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/test/until"
)

// TestStop proves that Stop leaves no process, can be called twice, and that the directory can be
// used again.
func TestStop(t *testing.T) {
	l := newLab(t)
	l.host("s1-eth1", "10.0.0.1/8")
	l.apply(pair()[0], pair()[1].without("s2-eth1"))
	pids := l.Pids()
	if len(pids) != 2 {
		t.Fatalf("processes %v, not 2", pids)
	}
	for range 2 {
		if err := l.Stop(l.ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, 0); err != unix.ESRCH {
			until.True(t, "the process is reaped", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
		}
	}
	again, err := Start(l.ctx, Config{Dir: l.dir, NetNS: "/run/netns/" + l.ns})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop(l.ctx)
	if err := again.Apply(l.ctx, []Bridge{{Name: "s1", DPID: 1}}); err != nil {
		t.Error(err)
	}
	if status, err := again.Status(l.ctx); err != nil || len(status) != 1 {
		t.Errorf("bridges of the new Open vSwitch: %v, %v", status, err)
	}
}

// without returns the bridge without one of its ports.
func (b Bridge) without(port string) Bridge {
	var ports []Port
	for _, p := range b.Ports {
		if p.Name != port {
			ports = append(ports, p)
		}
	}
	b.Ports = ports
	return b
}

// TestAttach proves that when a process ends, its switches keep forwarding, and another process
// that knows only the directory takes them over; that a second start there is refused while they
// run; and that when a daemon has died, that is reported, and what is left can be ended.
func TestAttach(t *testing.T) {
	if dir := os.Getenv("TRIVET_OVS_CHILD"); dir != "" { // the process that ends
		s, err := Start(t.Context(), Config{Dir: dir, NetNS: os.Getenv("TRIVET_OVS_NETNS")})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Apply(t.Context(), []Bridge{{Name: "s1", DPID: 1}}); err != nil {
			t.Fatal(err)
		}
		return
	}
	requireOVS(t)
	ctx, dir, ns := t.Context(), shortDir(t), "/run/netns/"+newNamespace(t, "sw")
	defer StopDir(context.Background(), dir)
	child := exec.Command(os.Args[0], "-test.run=^TestAttach$")
	child.Env = append(os.Environ(), "TRIVET_OVS_CHILD="+dir, "TRIVET_OVS_NETNS="+ns)
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s, err := Attach(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(ctx, Config{Dir: dir, NetNS: ns}); err == nil || !strings.Contains(err.Error(), "already running in "+dir) {
		t.Errorf("a second start: %v", err)
	}
	if s.Datapath() != System && s.Datapath() != Netdev {
		t.Errorf("the datapath type is %q", s.Datapath())
	}
	if err := s.Apply(ctx, []Bridge{{Name: "s1", DPID: 1}, {Name: "s2", DPID: 2}}); err != nil {
		t.Error(err)
	}
	if status, err := s.Status(ctx); err != nil || len(status) != 2 {
		t.Errorf("bridges: %v, %v", status, err)
	}

	if err := s.vswitch.kill(ctx); err != nil {
		t.Fatal(err)
	}
	err = s.Apply(ctx, []Bridge{{Name: "s1", DPID: 1}})
	if err == nil || !strings.Contains(err.Error(), "ovs-vswitchd ended") || !strings.Contains(err.Error(), "|bridge|INFO|") {
		t.Errorf("with a dead ovs-vswitchd: %v", err)
	}
	s.Close()
	if _, err := Attach(ctx, dir); err == nil || strings.Contains(err.Error(), "ovsdb-server ended") {
		t.Errorf("attaching to the half that lives: %v", err)
	}
	server := s.server.pid()
	if err := StopDir(ctx, dir); err != nil {
		t.Error(err)
	}
	if server == 0 || s.server.pid() != 0 {
		t.Errorf("ovsdb-server was process %d, is %d", server, s.server.pid())
	}
}

// TestStalePid proves that a pid file whose process has died stands for no process, even if its
// number is in use again.
func TestStalePid(t *testing.T) {
	d := &daemon{dir: t.TempDir(), name: "x"}
	if err := os.WriteFile(d.file(".pid"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if pid := d.pid(); pid != 0 {
		t.Errorf("took process %d for the daemon", pid)
	}
	if err := d.kill(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPacketSockets proves that the sockets through which ovs-vswitchd reads devices are found, so
// that Stop does not wait for each of them.
func TestPacketSockets(t *testing.T) {
	l := newLab(t)
	if l.Datapath() != Netdev {
		t.Skip("the kernel reads the devices")
	}
	l.host("s1-eth1", "10.0.0.1/8")
	l.host("s2-eth1", "10.0.0.2/8")
	l.apply(pair()...)
	fd, err := unix.PidfdOpen(l.vswitch.pid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	sockets := packetSockets(fd, l.vswitch.pid())
	closeAll(sockets)
	if len(sockets) != 2 {
		t.Errorf("%d sockets for 2 devices", len(sockets))
	}
}

// TestStartFails proves that a start that cannot succeed says why and leaves nothing running.
func TestStartFails(t *testing.T) {
	requireOVS(t)
	dir := shortDir(t)
	defer StopDir(context.Background(), dir)
	_, err := Start(t.Context(), Config{Dir: dir, NetNS: "/run/netns/there-is-none"})
	if err == nil || !strings.Contains(err.Error(), "network namespace /run/netns/there-is-none") {
		t.Errorf("the error is %v", err)
	}
	_, err = Start(t.Context(), Config{Dir: dir + strings.Repeat("/long", 20)})
	if err == nil || !strings.Contains(err.Error(), "too long for Unix sockets") {
		t.Errorf("the error is %v", err)
	}
	_, err = Start(t.Context(), Config{Dir: dir, Prepare: func(c *exec.Cmd) {
		if filepath.Base(c.Path) != "ovsdb-tool" {
			c.Args = append(c.Args, "--no-such-option")
		}
	}})
	if err == nil || !strings.Contains(err.Error(), "ovsdb-server ended") || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("the error is %v", err)
	}
	_, err = Start(t.Context(), Config{Dir: dir, Datapath: "windows"})
	if err == nil || !strings.Contains(err.Error(), `datapath type "windows" is neither system nor netdev`) {
		t.Errorf("the error is %v", err)
	}
	s, _ := open(dir)
	if pids := s.Pids(); len(pids) > 0 {
		t.Errorf("processes %v run", pids)
	}
}

// TestFullDisk proves that a change that ovs-vswitchd could not record is not waited for without
// end: the error says that the disk is full; and once it no longer is, the change is made.
func TestFullDisk(t *testing.T) {
	requireOVS(t)
	dir := shortDir(t)
	if err := unix.Mount("trivet", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := Start(ctx, Config{Dir: dir, NetNS: "/run/netns/" + newNamespace(t, "sw")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	bridges := []Bridge{{Name: "br1", DPID: 1}}
	root, err := readRoot(ctx, s.db)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Kill(s.vswitch.pid(), unix.SIGSTOP)
	done := make(chan error, 1)
	go func() { done <- s.Apply(ctx, bridges) }()
	for now := root; now.NextConfig == root.NextConfig && ctx.Err() == nil; now, _ = readRoot(ctx, s.db) {
		time.Sleep(time.Millisecond)
	}
	full := filepath.Join(dir, "full")
	f, err := os.Create(full)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if f.Close(); !errors.Is(err, unix.ENOSPC) {
		t.Fatal("the disk is not full: ", err)
	}
	for err = nil; err == nil; { // fills the rest of the database's last block
		tx := transaction{db: s.db}
		tx.raise(&root)
		_, err = tx.commit(ctx)
	}
	_ = unix.Kill(s.vswitch.pid(), unix.SIGCONT)
	if err := <-done; err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Error("on a full disk: ", err)
	}
	if err := errors.Join(os.Remove(full), s.Apply(ctx, bridges)); err != nil {
		t.Error("with room again: ", err)
	}
}
