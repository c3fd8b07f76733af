package bench

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// peer is a controller that is measured: Trivet's, or one that scripts/peers or the distribution
// installs.
type peer struct {
	name    string
	about   string                                        // which app, of which version of OpenFlow
	needs   func() string                                 // what is missing; empty: nothing
	command func(dir string, port int) (*exec.Cmd, error) // of a learning switch
	line    func(dir string, port int) (*exec.Cmd, error) // of link discovery; nil: it has none that needs no list of the links
	args    []string                                      // for the generator
}

// cached is a file that scripts/peers installs.
func cached(names ...string) string {
	dir := os.Getenv("XDG_CACHE_HOME")
	if dir == "" {
		home, _ := os.UserHomeDir()
		dir = filepath.Join(home, ".cache")
	}
	return filepath.Join(append([]string{dir, "trivet", "peers"}, names...)...)
}

func needsFile(file, how string) func() string {
	return func() string {
		if _, err := os.Stat(file); err != nil {
			return "not installed: " + how
		}
		return ""
	}
}

// patient is for all: some answer a thousand packets a second, of which as many may wait at a time,
// and a busy machine may hold up any of them.
var patient = []string{"--timeout", "20s", "--settle", "20s"}

// peers are in the order in which they take turns. The first is what the others are compared with.
var peers = []peer{
	{
		name: "ovs-testcontroller", about: "1.3",
		needs: func() string {
			if _, err := exec.LookPath("ovs-testcontroller"); err != nil {
				return "not installed: scripts/bootstrap --test"
			}
			return ""
		},
		command: func(dir string, port int) (*exec.Cmd, error) {
			return exec.Command("ovs-testcontroller", "-vANY:OFF", "--unixctl="+dir+"/ctl", fmt.Sprintf("ptcp:%d:127.0.0.1", port)), nil
		},
	},
	{
		name: "Trivet", about: "learning, 1.3", needs: func() string { return "" },
		command: ownController("learning"), line: ownController("discovery"),
	},
	{
		name: "libfluid", about: "msg_controller l2, 1.0", args: []string{"--openflow", "1.0"},
		needs: needsFile(cached("libfluid", "msg_controller"), "scripts/peers --libfluid CLONE"),
		command: func(_ string, port int) (*exec.Cmd, error) {
			cmd := exec.Command(cached("libfluid", "msg_controller"), "l2")
			cmd.Env = append(os.Environ(), fmt.Sprintf("FLUID_PORT=%d", port))
			return cmd, nil
		},
	},
	{
		name: "POX", about: "l2_learning, 1.0", args: []string{"--openflow", "1.0"},
		needs:   needsFile(cached("pox", "pox.py"), "scripts/peers --pox CLONE"),
		command: pox("forwarding.l2_learning"), line: pox("openflow.discovery"),
	},
	{
		name: "os-ken", about: "learning switch of 45 lines, eventlet, 1.3",
		needs:   needsFile(cached("os-ken", "installed"), "scripts/peers"),
		command: osken("osken_switch"), line: osken("os_ken.topology.switches", "--observe-links"),
	},
	{
		name: "Faucet", about: "new hosts, 1.3", args: []string{"--fresh", "--vlan", "100"},
		needs:   needsFile(cached("faucet", "installed"), "scripts/peers"),
		command: faucet,
	},
}

func ownController(app string) func(string, int) (*exec.Cmd, error) {
	return func(_ string, port int) (*exec.Cmd, error) {
		return exec.Command(binary, "controller", "--listen", fmt.Sprintf("tcp:127.0.0.1:%d", port), "--apps", app), nil
	}
}

func pox(component string) func(string, int) (*exec.Cmd, error) {
	return func(_ string, port int) (*exec.Cmd, error) {
		cmd := exec.Command("python3", "pox.py", "log.level", "--WARNING", "openflow.of_01", "--address=127.0.0.1", fmt.Sprintf("--port=%d", port), component)
		cmd.Dir = cached("pox")
		return cmd, nil
	}
}

func osken(module string, options ...string) func(string, int) (*exec.Cmd, error) {
	return func(_ string, port int) (*exec.Cmd, error) {
		dir, err := filepath.Abs("testdata/peers")
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(cached("os-ken", "bin", "python"), append([]string{filepath.Join(dir, "osken_run.py"), strconv.Itoa(port), module}, options...)...)
		cmd.Env = append(os.Environ(), "OSKEN_HUB_TYPE=eventlet", "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1")
		return cmd, nil
	}
}

// faucet writes a configuration of 16 switches with 4 ports, all in VLAN 100, with no bound on
// their hosts.
func faucet(dir string, port int) (*exec.Cmd, error) {
	var b strings.Builder
	b.WriteString("vlans: {office: {vid: 100, max_hosts: 100000000}}\ndps:\n")
	for dp := 1; dp <= 16; dp++ {
		fmt.Fprintf(&b, "  s%d:\n    dp_id: %d\n    hardware: Open vSwitch\n    ignore_learn_ins: 0\n    interfaces:\n", dp, dp)
		for p := 1; p <= 4; p++ {
			fmt.Fprintf(&b, "      %d: {native_vlan: office, max_hosts: 100000000}\n", p)
		}
	}
	file := filepath.Join(dir, "faucet.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		return nil, err
	}
	cmd := exec.Command(cached("faucet", "bin", "osken-manager"), "--config-file", "/dev/null", "--ofp-listen-host", "127.0.0.1",
		"--ofp-tcp-listen-port", strconv.Itoa(port), "faucet.faucet")
	cmd.Env = append(os.Environ(), "FAUCET_CONFIG="+file, "FAUCET_LOG="+dir+"/log", "FAUCET_EXCEPTION_LOG="+dir+"/exceptions", "FAUCET_PROMETHEUS_ADDR=127.0.0.1")
	return cmd, nil
}

// pinned has a command run on one processor, where there are two.
func pinned(cmd *exec.Cmd, cpu int) error {
	if runtime.NumCPU() < 2 {
		return nil
	}
	taskset, err := exec.LookPath("taskset")
	if err != nil {
		return err
	}
	if cmd.Err != nil {
		return cmd.Err
	}
	cmd.Args = append([]string{"taskset", "-c", strconv.Itoa(cpu), cmd.Path}, cmd.Args[1:]...)
	cmd.Path = taskset
	return nil
}

// run starts a controller on processor 0 and returns its address and process once it listens; it
// ends with the test's part.
func run(t *testing.T, command func(string, int) (*exec.Cmd, error)) (connect string, pid int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	cmd, err := command(t.TempDir(), port)
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := pinned(cmd, 0); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // Pdeathsig is of the thread that starts it
	t.Cleanup(runtime.UnlockOSThread)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for range 1500 {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			conn.Close()
			return fmt.Sprintf("tcp:127.0.0.1:%d", port), cmd.Process.Pid
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%s does not listen after 30 s:\n%s", cmd.Args, said.String())
	return "", 0
}
