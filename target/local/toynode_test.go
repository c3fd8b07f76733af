package local_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

// toy is a kind of nodes that something else on the machine runs, as it does containers: each is a
// process with namespaces of its own, outside of the lab's cgroups and directory. It consists of
// this file alone.
type toy struct{ local.Namespaces }

// runtime is what runs toys: their processes, by lab and node.
var runtime = map[string]*exec.Cmd{}

func init() {
	local.Register(local.Kind{NodeKind: topology.NodeKind{Name: "toy", Of: isToy, Own: true},
		New:    func(l *local.Lab) local.Nodes { return toy{local.Namespaces{Lab: l}} },
		Lacks:  lacks,
		Remove: func(lab, _ string) error { return stop(lab + "/") }})
}

func isToy(n *topology.Node) bool { return strings.HasPrefix(n.Name, "toy") }

func lacks(t *topology.Topology) error {
	if slices.ContainsFunc(t.Nodes, func(n *topology.Node) bool { return isToy(n) && len(n.Dirs) > 0 }) {
		return errors.New("toys have no directories")
	}
	return nil
}

func stop(prefix string) error {
	for name, p := range runtime {
		if strings.HasPrefix(name, prefix) {
			_ = p.Process.Kill()
			_ = p.Wait()
			delete(runtime, name)
		}
	}
	return nil
}

func (k toy) at(n *topology.Node) string { return k.Name + "/" + n.Name }

func (k toy) Make(nodes []*topology.Node, made func(*topology.Node)) error {
	for _, n := range nodes {
		p := exec.Command("sleep", "600")
		p.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWNS}
		if err := p.Start(); err != nil {
			return err
		}
		runtime[k.at(n)] = p
		if err := k.Keep(n, p.Process.Pid); err != nil {
			return err
		}
		made(n)
	}
	return nil
}

func (k toy) Remove(n *topology.Node) error {
	return errors.Join(stop(k.at(n)), k.Namespaces.Remove(n))
}

func (k toy) Enter(n *topology.Node) error { return k.EnterNetwork(n) }

func (k toy) Enclose(n *topology.Node, cmd *exec.Cmd) error {
	path, err := exec.LookPath("nsenter")
	cmd.Args = append([]string{path, "--all", "--target", fmt.Sprint(runtime[k.at(n)].Process.Pid)}, cmd.Args...)
	cmd.Path = path
	return err
}

// TestToyNode proves that a kind of nodes that does no more than register itself can be in a lab:
// its nodes come up with devices and addresses, reach others, have commands run in them and are
// read; a change makes and removes them; what it lacks is said before; and when the process that
// made the lab is gone, nothing that the kind has made elsewhere outlives the lab.
func TestToyNode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	of := func(toys ...string) *topology.Topology {
		top := &topology.Topology{}
		for _, name := range toys {
			top.AddNode(topology.Host, name)
			top.AddNode(topology.Host, "beside-"+name)
			top.AddLink(name, "beside-"+name)
		}
		out, problems := topology.Resolve(top, topology.Defaults{Datapath: topology.Bridge})
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		return out
	}
	wrong := of("toy1")
	wrong.Nodes[0].Dirs = []topology.PrivateDir{{Path: "/tmp"}}
	if err := lab.Targets[lab.OnThisMachine].Check(wrong); err == nil || !strings.Contains(err.Error(), "toys have no directories") {
		t.Error(err)
	}

	dir := filepath.Join(t.TempDir(), "toy")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("test-toynode-%d", os.Getpid())
	l, err := local.New(name, dir, lab.Hooks{OnFabric: func(context.Context) error { return nil }, OnUndo: func() {}, OnEnd: func(string) {}, OnLoop: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	quiet := func(string, int, int) {}
	remove := func() {
		if err := local.Remove(name, dir, quiet, func(string) {}); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(remove)
	if err := l.Up(t.Context(), of("toy1"), quiet); err != nil {
		l.Close()
		t.Fatal(err)
	}
	output := func(node string, words ...string) string {
		t.Helper()
		var out strings.Builder
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := l.Start(node, cmd); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		return strings.TrimSpace(out.String())
	}
	sys := func() (st unix.Stat_t) {
		if err := unix.Stat("/sys", &st); err != nil {
			t.Fatal(err)
		}
		return st
	}
	was := sys()
	first := runtime[name+"/toy1"]
	for _, ns := range []string{"net", "uts", "mnt"} {
		want, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", first.Process.Pid, ns))
		if got := output("toy1", "readlink", "/proc/self/ns/"+ns); err != nil || got != want {
			t.Errorf("a command in toy1 is in %s, not in %s: %v", got, want, err)
		}
	}
	if is := sys(); is.Dev != was.Dev {
		t.Error("what runs in a node without files of its own is shown its devices at the machine's /sys")
	}
	is, err := l.Present(t.Context(), []string{"toy1"})
	if want := topology.EndsOf(l.Topology())["toy1"][0]; err != nil || !is[0].Network || !slices.Equal(is[0].Addresses[want.Interface], want.Addresses) {
		t.Errorf("toy1 is %+v, not %+v: %v", is, want, err)
	}
	if only, err := l.Addresses(t.Context(), []string{"toy1"}); err != nil || len(only) != 1 || !maps.EqualFunc(only[0].Addresses, is[0].Addresses, slices.Equal) || only[0].Network {
		t.Errorf("toy1 has the addresses %+v, not those of %+v: %v", only, is[0], err)
	}
	if err := l.Apply(t.Context(), of("toy1", "toy2"), quiet); err != nil {
		t.Fatal(err)
	}
	reach := func(node string) {
		t.Helper()
		at := &net.TCPAddr{IP: topology.EndsOf(l.Topology())[node][0].Addresses[0].Addr().AsSlice()}
		var listener *net.TCPListener
		if err := l.OnNode(node, func() (err error) { listener, err = net.ListenTCP("tcp", at); return err }); err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		err := l.OnNode("beside-"+node, func() error {
			c, err := net.DialTCP("tcp", nil, listener.Addr().(*net.TCPAddr))
			if err == nil {
				c.Close()
			}
			return err
		})
		if err != nil {
			t.Errorf("nothing reaches %s: %v", node, err)
		}
	}
	reach("toy1")
	reach("toy2")
	if err := l.Apply(t.Context(), of("toy2"), quiet); err != nil {
		t.Fatal(err)
	}
	if first.ProcessState == nil || runtime[name+"/toy2"] == nil {
		t.Errorf("toy1 has been removed, and there are %v", runtime)
	}
	reach("toy2")
	l.Close() // as if the process had ended
	remove()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) || len(runtime) > 0 {
		t.Errorf("left are %v: %v", runtime, err)
	}
}
