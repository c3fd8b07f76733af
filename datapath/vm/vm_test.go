package vm

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/topology"
)

// TestBootOrder proves that modules are loaded after those that they need, each once; that what is
// built in is left out; and that a kernel without one of them is refused.
func TestBootOrder(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("modules.dep", "fs/virtiofs.ko: fs/fuse.ko v/virtio.ko v/ring.ko\nv/virtio_pci.ko.xz: v/virtio.ko v/ring.ko\nv/virtio.ko: v/ring.ko\nv/ring.ko:\nfs/fuse.ko:\nn/virtio_net.ko: v/virtio.ko v/ring.ko\n")
	write("modules.builtin", "kernel/fs/overlay.ko\nkernel/v/virtio_balloon.ko\n")
	order, err := Kernel{Modules: dir}.bootOrder()
	want := []string{"v/ring.ko", "v/virtio.ko", "v/virtio_pci.ko.xz", "fs/fuse.ko", "fs/virtiofs.ko", "n/virtio_net.ko"}
	if err != nil || !slices.Equal(order, want) {
		t.Errorf("%v, %v", order, err)
	}
	write("modules.builtin", "kernel/fs/overlay.ko\n")
	if _, err := (Kernel{Modules: dir}).bootOrder(); err == nil || !strings.Contains(err.Error(), "virtio_balloon") {
		t.Errorf("without virtio_balloon: %v", err)
	}
}

// TestKeptKernel proves that a lab keeps its kernel while another one is named no more, and that
// one that is named goes before it.
func TestKeptKernel(t *testing.T) {
	kernel := func() string {
		dir := t.TempDir()
		modules := filepath.Join(dir, "lib/modules/6.1")
		err := os.MkdirAll(modules, 0o755)
		for file, text := range map[string]string{
			filepath.Join(dir, "linux"):               "",
			filepath.Join(modules, "modules.dep"):     "",
			filepath.Join(modules, "modules.builtin"): "virtio_pci.ko\nvirtiofs.ko\noverlay.ko\nvirtio_net.ko\nvirtio_balloon.ko\n",
		} {
			err = errors.Join(err, os.WriteFile(file, []byte(text), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	file, one, two := filepath.Join(t.TempDir(), "kernel"), kernel(), kernel()
	for _, c := range [][2]string{{one, one}, {"", one}, {two, two}, {"", two}} {
		if k, err := KeepKernel(c[0], file); err != nil || filepath.Dir(k.Image) != c[1] {
			t.Errorf("%q: %v, %v", c[0], k, err)
		}
	}
}

// TestSettles proves that a guest is told of other buffers while it runs, and of nothing else.
func TestSettles(t *testing.T) {
	text := func(s Spec) string {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	forward := datapath.Setting{Path: "/proc/sys/net/ipv4/ip_forward", Value: "1"}
	buffer := datapath.Setting{Path: "/proc/sys/net/ipv4/tcp_rmem", Value: "4096 131072 5000000", Optional: true}
	with := func(mtu int, list ...datapath.Setting) Spec {
		return Spec{Name: "r1", Interfaces: []Interface{{Name: "r1-eth0", MAC: topology.MAC{2, 0, 0, 0, 0, 1}, MTU: mtu}}, Settings: list}
	}
	was := with(1500, forward)
	for _, c := range []struct {
		is   Spec
		want bool
	}{{with(1500, forward, buffer), true}, {with(1500, buffer), false}, {with(1400, forward, buffer), false}} {
		if Settles(text(was), text(c.is)) != c.want || Settles(text(c.is), text(was)) != c.want {
			t.Errorf("%v", c.is)
		}
	}
	if some := with(1500, forward, buffer); !slices.Equal(some.Buffers(), []datapath.Setting{buffer}) {
		t.Errorf("%v", some.Buffers())
	}
	if Settles("", text(was)) {
		t.Error("without a file")
	}
}

// TestSettlesConfiguration proves that a guest is told of another configuration of its owner's
// while it runs, with the daemons and the addresses that this has; but not of one in place of
// Trivet's, of an address that is not of it, or of anything else beside it.
func TestSettlesConfiguration(t *testing.T) {
	at := netip.MustParsePrefix
	spec := func(change func(*Spec)) string {
		s := Spec{Name: "r1", Interfaces: []Interface{{Name: "r1-eth0", MAC: topology.MAC{2, 0, 0, 0, 0, 1}, MTU: 1500, Addresses: []netip.Prefix{at("10.0.0.1/24"), at("10.0.9.1/24")}}},
			Programs: []Program{{Path: "/zebra", Files: map[string]string{routerd.FRRFile: "a"}}},
			Loading:  &routerd.Loading{Router: "r1", Gives: map[string][]netip.Prefix{"r1-eth0": {at("10.0.0.1/24")}}}}
		change(&s)
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	was := spec(func(*Spec) {})
	for what, c := range map[string]struct {
		change func(*Spec)
		want   bool
	}{
		"a line":    {func(s *Spec) { s.Programs[0].Files[routerd.FRRFile] = "b" }, true},
		"a daemon":  {func(s *Spec) { s.Programs = append(s.Programs, Program{Path: "/bgpd"}) }, true},
		"no reload": {func(s *Spec) { s.Loading.Change = []string{"reload"} }, true},
		"an address": {func(s *Spec) {
			s.Interfaces[0].Addresses[0], s.Loading.Gives["r1-eth0"][0] = at("10.0.1.1/24"), at("10.0.1.1/24")
		}, true},
		"lo": {func(s *Spec) {
			s.Loopback, s.Loading.Gives["lo"] = []netip.Prefix{at("192.0.2.1/32")}, []netip.Prefix{at("192.0.2.1/32")}
		}, true},
		"another address": {func(s *Spec) { s.Interfaces[0].Addresses[1] = at("10.0.8.1/24") }, false},
		"an MTU":          {func(s *Spec) { s.Interfaces[0].MTU = 1400 }, false},
		"Trivet's":        {func(s *Spec) { s.Loading = nil }, false},
	} {
		is := spec(c.change)
		if Settles(was, is) != c.want || Settles(is, was) != c.want {
			t.Errorf("%s", what)
		}
	}
}

// TestVersions proves that kernels are ordered by their numbers.
func TestVersions(t *testing.T) {
	for _, pair := range [][2]string{{"vmlinuz-6.1.0-9-amd64", "vmlinuz-6.1.0-10-amd64"}, {"vmlinuz-5.15.0-1-x", "vmlinuz-6.1.0-1-x"}} {
		if compareVersions(pair[0], pair[1]) >= 0 || compareVersions(pair[1], pair[0]) <= 0 {
			t.Errorf("%s is not older than %s", pair[0], pair[1])
		}
	}
}

type slowWriter struct{ strings.Builder }

func (w *slowWriter) Write(b []byte) (int, error) {
	time.Sleep(2 * lastWords)
	return w.Builder.Write(b)
}

// printed is the pipe of a command that has ended after it has printed something, the end of which
// something in the background keeps open.
func printed(t *testing.T, text string) (out, in *os.File) {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		out.Close()
		in.Close()
	})
	if _, err := in.WriteString(text); err != nil {
		t.Fatal(err)
	}
	_ = out.SetReadDeadline(time.Now())
	return out, in
}

// TestForward proves that a reader who takes his time loses nothing of what a command has printed
// before it ended, although something in the background keeps its pipe open; and that one that
// prints for ever does not hold it.
func TestForward(t *testing.T) {
	text := strings.Repeat("walnut", 8000)
	out, in := printed(t, text)
	var slow slowWriter
	if forward(&slow, out); slow.String() != text {
		t.Errorf("of %d bytes came %d", len(text), slow.Len())
	}
	go func() {
		for {
			if _, err := in.WriteString(text); err != nil {
				return
			}
		}
	}()
	_ = out.SetReadDeadline(time.Now())
	forward(io.Discard, out)
}

// stalling is a file whose first reads come late, as others have the processor.
type stalling struct {
	*os.File
	stalls int
}

func (f *stalling) Read(b []byte) (int, error) {
	if f.stalls--; f.stalls >= 0 {
		time.Sleep(2 * lastWords)
	}
	return f.File.Read(b)
}

// TestForwardInStalls proves that what a command has printed is copied also if the guest stalls
// again and again, each time for longer than output is waited for, when it is about to be read.
func TestForwardInStalls(t *testing.T) {
	const text = "walnut"
	out, _ := printed(t, text)
	var got strings.Builder
	if forward(&got, &stalling{out, 3}); got.String() != text {
		t.Errorf("%q came", got.String())
	}
}

// serving is an agent, and a connection to it.
func serving(t *testing.T) (*agent, *ssh.Client) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{config: &ssh.ServerConfig{NoClientAuth: true}, ours: map[int]bool{}}
	a.config.AddHostKey(signer)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	a.listener = listener
	go func() {
		if conn, err := listener.Accept(); err == nil {
			a.client(conn)
		}
	}()
	client, err := ssh.Dial("tcp", listener.Addr().String(), &ssh.ClientConfig{HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return a, client
}

// TestAgent proves that a command gets its input, and its output, errors, directory and exit code
// come back; that a signal reaches it; that what it left in the background does not hold it; and
// that a terminal has the size asked for.
func TestAgent(t *testing.T) {
	_, client := serving(t)
	for _, c := range []struct {
		script, signal, out, errs string
		tty                       bool
		code                      int
	}{
		{script: "cat; pwd; echo walnut >&2; exit 7", out: "typed\n/usr\n", errs: "walnut\n", code: 7},
		{script: "sleep 60 & echo done", out: "done\n"},
		{script: "kill -9 $$", code: 137},
		{script: "exec 2>/dev/null; trap 'exit 5' TERM; while :; do sleep 0.01; done", signal: "TERM", code: 5},
		{script: "stty size", tty: true, out: "24 100\r\n"},
	} {
		s, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		var out, errs strings.Builder
		s.Stdin, s.Stdout, s.Stderr = strings.NewReader("typed\n"), &out, &errs
		if c.tty {
			s.Stdin = nil
			if err := s.RequestPty("dumb", 24, 100, ssh.TerminalModes{}); err != nil {
				t.Fatal(err)
			}
		}
		what, err := json.Marshal(ask{Command: []string{"/bin/sh", "-c", c.script}, Env: os.Environ(), Dir: "/usr"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(string(what)); err != nil {
			t.Fatal(err)
		}
		if c.signal != "" {
			err = s.Signal(ssh.Signal(c.signal))
		}
		var exit *ssh.ExitError
		code := 0
		if e := s.Wait(); errors.As(e, &exit) {
			code = exit.ExitStatus()
		} else {
			err = errors.Join(err, e)
		}
		early := c.signal != "" && code == 143 // it came before the trap was set
		if err != nil || out.String() != c.out || errs.String() != c.errs || code != c.code && !early {
			t.Errorf("%s: %q, %q, exit %d: %v", c.script, out.String(), errs.String(), code, err)
		}
	}
	if ok, text, err := client.SendRequest("routes", true, nil); !ok || err != nil || !strings.Contains(string(text), "Iface") {
		t.Errorf("routes: %v, %q, %v", ok, text, err)
	}
}

// TestPaths proves that a machine is not started with paths that its kernel, or virtiofsd, would
// take for several, and that the error says which and what to do.
func TestPaths(t *testing.T) {
	for _, c := range []struct{ dir, program, want string }{
		{"/run/my labs/l/routers/r1", "/usr/bin/trivet", `"/run/my labs/l/routers/r1", for the white space, comma or quote: have TRIVET_RUN_DIR name another`},
		{"/run/labs,mine/l/routers/r1", "/usr/bin/trivet", "have TRIVET_RUN_DIR name another"},
		{"/run/trivet/l/routers/r1", "/home/x/my tools/trivet", `"/home/x/my tools/trivet", for the white space or quote: rename it`},
	} {
		if cmd, _, _, err := Prepare(nil, c.dir, c.program); cmd != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
