package linux

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/datapath/vm"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/inside/insidetest"
	"trivet.dev/trivet/internal/qemu"
	"trivet.dev/trivet/test/until"
)

// qmp is a QEMU of which there is only the end of its monitor. Once it is told not to answer, it
// takes no notice of what is said, until it is told to again.
type qmp struct {
	mu      sync.Mutex
	silent  bool
	up      map[string]bool // the interfaces, by name, that it has been told of since it was silent
	ignored int             // requests
}

// start makes it listen in a node's directory. It has one connection at a time.
func (q *qmp) start(t *testing.T, dir string) {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(dir, "qmp.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			q.serve(conn)
		}
	}()
}

func (q *qmp) serve(conn net.Conn) {
	defer conn.Close()
	fmt.Fprintln(conn, `{"QMP": {}}`)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var request struct {
			Execute   string
			Arguments struct {
				Name string
				Up   bool
			}
		}
		_ = json.Unmarshal(lines.Bytes(), &request)
		q.mu.Lock()
		silent := q.silent
		if silent {
			q.ignored++
		} else if request.Execute == "set_link" {
			q.up[request.Arguments.Name] = request.Arguments.Up
		}
		q.mu.Unlock()
		if !silent {
			fmt.Fprintln(conn, `{"event": "X"}`+"\n"+`{"return": {}}`)
		}
	}
}

func (q *qmp) be(silent bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.silent = silent
	clear(q.up)
}

// ignores says whether it has not answered so many requests.
func (q *qmp) ignores(requests int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ignored >= requests
}

// knows says whether it has been told that the interfaces are up, or down.
func (q *qmp) knows(up ...bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, want := range up {
		if is, known := q.up[fmt.Sprintf("nic%d", i)]; !known || is != want {
			return false
		}
	}
	return true
}

// oneNode is a site with one node.
type oneNode struct {
	datapath.Site
	dir string

	inside sync.Mutex // held while something is done there
	ns     *os.File   // nil: it is gone

	mu   sync.Mutex
	said []string
}

func (s *oneNode) NodeDir(string) string { return s.dir }

func (s *oneNode) OnNode(_ string, f func() error) error {
	s.inside.Lock()
	defer s.inside.Unlock()
	if s.ns == nil {
		return os.ErrClosed
	}
	return inside.File(s.ns, f)
}

func (s *oneNode) Ended(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, what)
}

// says counts what has been said with some words.
func (s *oneNode) says(words string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, what := range s.said {
		if strings.Contains(what, words) {
			n++
		}
	}
	return n
}

// machineOf returns a fabric with a machine of two interfaces, a and b, whose devices' other ends
// have the same names at the other end of the cables.
func machineOf(t *testing.T, q *qmp) (f *fabric, s *oneNode, p *daemon, spec *vm.Spec, far *os.File) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	s = &oneNode{dir: t.TempDir(), ns: insidetest.New(t)}
	t.Cleanup(func() { // who follows the links may still be there when the machine has ended
		s.inside.Lock()
		defer s.inside.Unlock()
		s.ns = nil
	})
	far = insidetest.New(t)
	for _, name := range []string{"a", "b"} {
		err := inside.File(s.ns, func() error {
			err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name, PeerNamespace: netlink.NsFd(far.Fd())})
			if err != nil {
				return err
			}
			dev, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			return netlink.LinkSetUp(dev)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	q.up = map[string]bool{}
	q.start(t, s.dir)
	f = newFabric(s)
	f.machines.answers = 3 * time.Second // also of one that is a goroutine of a busy process
	p = &daemon{cmd: exec.Command("sleep", "600"), ended: make(chan struct{})}
	p.Name = machineName
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		<-p.ended
	})
	go f.watch("r1", p)
	return f, s, p, &vm.Spec{Interfaces: []vm.Interface{{Name: "a"}, {Name: "b"}}}, far
}

// plug sets the far end of a cable up, or down.
func plug(t *testing.T, far *os.File, name string, up bool) {
	t.Helper()
	err := inside.File(far, func() error {
		dev, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(dev)
		}
		return netlink.LinkSetDown(dev)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFollowLinks proves that a machine hears of its links' carriers; that one which does not
// answer for a while, which is said once, hears of all of them afterwards, and of later ones; and
// that nobody talks to it once it has ended.
func TestFollowLinks(t *testing.T) {
	q := &qmp{}
	f, s, p, spec, far := machineOf(t, q)
	plug(t, far, "a", true)
	until.True(t, "a has a carrier", func() bool {
		var up []bool
		err := s.OnNode("r1", func() (err error) { up, err = qemu.Carriers(spec.NICs()); return err })
		return err == nil && up[0]
	})
	if err := f.followLinks("r1", p, spec); err != nil {
		t.Fatal(err)
	}
	until.True(t, "the machine knows its links", func() bool { return q.knows(true, false) })
	plug(t, far, "b", true)
	until.True(t, "it hears of a change", func() bool { return q.knows(true, true) })

	q.be(true)
	plug(t, far, "a", false)
	until.True(t, "its silence is told", func() bool { return s.says("does not hear which of its links are up") == 1 })
	plug(t, far, "b", false)
	until.True(t, "it is tried again", func() bool { return q.ignores(2) })
	q.be(false)
	until.True(t, "it knows all", func() bool { return q.knows(false, false) })
	until.True(t, "that is told", func() bool { return s.says("hears again") == 1 })
	plug(t, far, "a", true)
	until.True(t, "it hears of later changes", func() bool { return q.knows(true, false) })
	if n := s.says("does not hear"); n != 1 {
		t.Errorf("its silence is told %d times", n)
	}

	p.kill()
	<-p.ended
	until.True(t, "the monitor is free", func() bool {
		m, err := qemu.Watch(s.dir, f.machines.answers)
		if err == nil {
			m.Close()
		}
		return err == nil
	})
}

// TestResumeSilent proves that a machine which does not answer the daemon that takes the lab over
// is ended, so that it is started anew, and that this is said; one that answers is left alone.
func TestResumeSilent(t *testing.T) {
	for _, silent := range []bool{false, true} {
		q := &qmp{silent: silent}
		f, s, p, spec, _ := machineOf(t, q)
		if err := f.rejoin(t.Context(), "r1", p, spec); err != nil {
			t.Errorf("silent: %v: %v", silent, err)
		}
		if p.alive() == silent {
			t.Errorf("silent: %v: it lives: %v", silent, p.alive())
		}
		if silent {
			until.True(t, "it is said", func() bool {
				return s.says("virtual-machine of router r1 is started anew: reach QEMU: QEMU does not answer") == 1
			})
		}
		if n := s.says("has ended"); n != 0 {
			t.Errorf("silent: %v: it is said to have ended", silent)
		}
	}
}
