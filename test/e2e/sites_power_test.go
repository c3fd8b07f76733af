package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// rack is several virtual machines on a segment, each with a kernel of its own, that share a
// directory with this machine. The first is the head, and does what a shell there is told.
type rack struct {
	t      *testing.T
	dir    string
	kernel string
	vms    map[string]*exec.Cmd
	said   int                 // commands so far
	wires  map[string][]string // what a machine's interfaces are connected to; all others: one segment
	others map[string][]string // options of vmrun for machines that are not of that kernel
}

const rackVariable = "TRIVET_RACK" // the kernel of its machines

// newRack boots the machines head, m1 … mn: the head is 10.5.0.1, m1 is 10.5.0.2.
func newRack(t *testing.T, n int) *rack {
	t.Helper()
	return newWiredRack(t, n, nil, nil)
}

// newWiredRack boots them where not all are on one segment; first boots what joins the wires.
func newWiredRack(t *testing.T, n int, wires map[string][]string, first func(*rack)) *rack {
	t.Helper()
	kernel := os.Getenv(rackVariable)
	if kernel == "" {
		t.Skip("boots virtual machines: make test-vm")
	}
	dir, err := os.MkdirTemp("/var/tmp", "rack-") // the machines' own /tmp is not this one's
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rack{t: t, dir: dir, kernel: kernel, vms: map[string]*exec.Cmd{}, wires: wires}
	list, known := "keep: 20s\nmachines:\n", ""
	key := func(name string) string {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		b, err := os.ReadFile(filepath.Join(dir, name+".pub"))
		must(t, err)
		return string(b)
	}
	key("own")
	for i := 1; i <= n; i++ {
		name := fmt.Sprintf("m%d", i)
		known += fmt.Sprintf("10.5.0.%d %s", i+1, key(name))
		list += fmt.Sprintf("  %s: {ssh: root@10.5.0.%d, key: %s/own}\n", name, i+1, dir)
		r.file(name+".conf", fmt.Sprintf("HostKey %s/%s\nAuthorizedKeysFile %s/own.pub\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nUsePAM no\nPidFile none\n",
			dir, name, dir))
	}
	r.file("known_hosts", known)
	r.file("machines.yaml", list)
	t.Cleanup(func() {
		for name := range r.vms {
			r.cut(name)
		}
	})
	if first != nil {
		first(r)
	}
	r.bootHead()
	for i := 1; i <= n; i++ {
		r.bootSite(i)
	}
	for i := 1; i <= n; i++ {
		r.answers(i)
	}
	return r
}

func (r *rack) file(name, text string) {
	must(r.t, os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600))
}

func (r *rack) boot(name string, address int, then string) {
	r.t.Helper()
	log, err := os.Create(filepath.Join(r.dir, name+".log"))
	must(r.t, err)
	defer log.Close()
	vmrun, _ := filepath.Abs("../vm/vmrun")
	// What a killed test leaves ends when its own time would have been over.
	args := append([]string{"--kernel", r.kernel, "--mem", "512", "--timeout", "1500", "--share", r.dir + ":rw", "--name", name}, r.others[name]...)
	wires := r.wires[name]
	if wires == nil {
		wires = []string{"wire"}
	}
	for _, w := range wires {
		args = append(args, "--net", filepath.Join(r.dir, w))
	}
	cmd := exec.Command(vmrun, append(args, "--", "sh", "-c",
		fmt.Sprintf("ip link set lo up; ip addr add 10.5.0.%d/24 dev eth0 && ip link set eth0 up; %s", address, then))...)
	cmd.Stdout, cmd.Stderr = log, log
	must(r.t, cmd.Start())
	r.vms[name] = cmd
}

// bootHead boots the head, which goes on with the commands that come.
func (r *rack) bootHead() {
	r.boot("head", 1, fmt.Sprintf(`mkdir -p /run/h/.ssh && cp %[1]s/known_hosts /run/h/.ssh && export HOME=/run/h && cd %[1]s
		while :; do [ -e beside.cmd ] || { sleep 0.05; continue; }; mv beside.cmd beside.now; sh beside.now >beside.out 2>&1; mv beside.now beside.done; done &
		n=%[2]d; while :; do [ -e $n.cmd ] || { sleep 0.05; continue; }; sh $n.cmd >$n.out 2>&1; echo $? >$n.tmp; mv $n.tmp $n.rc; n=$((n+1)); done`, r.dir, r.said+1))
}

func (r *rack) bootSite(i int) {
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		sshd = "/usr/sbin/sshd"
	}
	r.boot(fmt.Sprintf("m%d", i), i+1, fmt.Sprintf("mkdir -p /run/sshd; : >/root/.bashrc; exec %s -D -e -f %s/m%d.conf", sshd, r.dir, i))
}

// answers waits until a machine can be reached by SSH.
func (r *rack) answers(i int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("m%d answers", i), func() bool {
		code, _ := r.do(fmt.Sprintf("ssh -o ConnectTimeout=2 -o BatchMode=yes -i %s/own -o UserKnownHostsFile=%s/known_hosts root@10.5.0.%d true", r.dir, r.dir, i+1))
		return code == 0
	})
}

// cut takes the power from a machine.
func (r *rack) cut(name string) {
	cmd := r.vms[name]
	delete(r.vms, name)
	_ = cmd.Process.Signal(unix.SIGTERM) // the harness ends the machine, which hears nothing of it
	kill := time.AfterFunc(20*time.Second, func() {
		r.t.Errorf("%s: the harness does not end", name)
		_ = cmd.Process.Kill()
	})
	_ = cmd.Wait()
	kill.Stop()
}

// begin lets the head run a command; the function it returns waits for its end.
func (r *rack) begin(command string) func() (code int, out string) {
	r.t.Helper()
	r.said++
	base := filepath.Join(r.dir, strconv.Itoa(r.said))
	must(r.t, os.WriteFile(base+".new", []byte(command+"\n"), 0o600))
	must(r.t, os.Rename(base+".new", base+".cmd"))
	return func() (int, string) {
		r.t.Helper()
		for end := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			if b, err := os.ReadFile(base + ".rc"); err == nil {
				code, _ := strconv.Atoi(string(bytes.TrimSpace(b)))
				out, err := os.ReadFile(base + ".out")
				must(r.t, err)
				return code, string(out)
			}
			if time.Now().After(end) {
				log, _ := os.ReadFile(filepath.Join(r.dir, "head.log"))
				r.t.Fatalf("the head does not finish: %s\n%s", command, log)
			}
		}
	}
}

func (r *rack) do(command string) (code int, out string) { return r.begin(command)() }

// beside runs a command at the head while another one runs.
func (r *rack) beside(command string) {
	r.t.Helper()
	at := func(name string) string { return filepath.Join(r.dir, "beside."+name) }
	_ = os.Remove(at("done"))
	must(r.t, os.WriteFile(at("new"), []byte(command+"\n"), 0o600))
	must(r.t, os.Rename(at("new"), at("cmd")))
	eventually(r.t, "the head does "+command, func() bool { _, err := os.Stat(at("done")); return err == nil })
}

// trivet runs the program at the head, which must succeed.
func (r *rack) trivet(words ...string) string {
	r.t.Helper()
	command := trivet + " " + strings.Join(words, " ")
	code, out := r.do(command)
	if code != 0 {
		r.t.Fatalf("%s: exit %d: %s", command, code, out)
	}
	return out
}

// TestSitesPower proves, on virtual machines with kernels of their own, that a lab over three of
// them outlives one that loses its power: the head names it, and once it has booted again, apply
// makes its part anew; and that a power cut while the lab comes up, changes or goes down ends the
// command with an error that names the machine, after which nothing is left at the others.
func TestSitesPower(t *testing.T) {
	r := newRack(t, 2)
	const left = "ls -A /run/trivet /sys/fs/cgroup/trivet /run/netns 2>/dev/null; ip -br link; nft list tables"
	_, before := r.do(left)
	up := []string{"up", "linear,6", "--on", r.dir + "/machines.yaml", "--name", "power", "--wait", "3m"}
	power := func() {
		r.t.Helper()
		r.bootSite(2)
		r.answers(2)
	}
	all := func() {
		r.t.Helper()
		eventually(t, "all hosts reach each other", func() bool {
			_, out := r.do(trivet + " ping --all --timeout 20s")
			return strings.Contains(out, "30 sent, 30 received")
		})
	}
	clean := func() {
		r.t.Helper()
		ask := fmt.Sprintf("%s; ssh -i %s/own -o UserKnownHostsFile=%s/known_hosts root@10.5.0.2 'ls -A /run/trivet 2>/dev/null; nft list tables'", left, r.dir, r.dir)
		var now string
		for end := time.Now().Add(40 * time.Second); now != before && time.Now().Before(end); time.Sleep(time.Second) {
			_, now = r.do(ask)
		}
		if now != before {
			t.Fatalf("was:\n%s\nis:\n%s", before, now)
		}
	}

	out := r.trivet(up...)
	contains(t, out, "2 other sites over SSH", "across: 2 links by VXLAN")
	all()
	r.cut("m2")
	eventually(t, "the head names the machine", func() bool { _, out := r.do(trivet + " ls"); return strings.Contains(out, "site m2") })
	contains(t, r.trivet("ping", "h1", "h2"), "5 received") // the others go on
	power()
	eventually(t, "the head says that the part is gone", func() bool { _, out := r.do(trivet + " ls"); return strings.Contains(out, "the part at m2") })
	contains(t, r.trivet("apply", "linear,6"), "the part at m2 has ended: started again")
	all()

	moments := newRandom(r.t)
	for _, op := range []string{"apply", "down", "up"} { // the lab is up at first, and not at the end
		words := map[string][]string{"up": up, "apply": {"apply", "linear,8"}, "down": {"down"}}[op]
		if op == "down" {
			r.trivet(up...)
		}
		end := r.begin(trivet + " " + strings.Join(words, " "))
		after := time.Duration(moments.Int64N(int64(4 * time.Second)))
		time.Sleep(after)
		r.cut("m2")
		code, out := end()
		t.Logf("power cut %s into %s: exit %d: %s", after.Round(10*time.Millisecond), op, code, lastLine(out))
		if code != 0 && !strings.Contains(out, "m2") {
			t.Errorf("power cut %s into %s: %s", after, op, out)
		}
		power()
		_, _ = r.do(trivet + " down power") // where it is gone, there is nothing to do
		clean()
	}
}
