package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// farm is a gateway and devices, each a network namespace on one segment; the devices have an sshd,
// processes, mounts and a /run/trivet of their own.
type farm struct {
	dir     string
	gateway string // file of its namespace
	n       int
}

// device is what runs at one: its arguments are its address, its number and the farm's directory.
// All of /run is its own: a mount on /run/trivet alone would go when the gateway removes its own
// /run/trivet.
const device = `mount -t tmpfs run /run && mkdir /run/trivet /run/netns /run/sshd && cp /etc/hosts $3/hosts$2 && mount --bind $3/hosts$2 /etc/hosts
home=$(getent passwd root | cut -d: -f6); [ ! -e $home/.bashrc ] || mount --bind /dev/null $home/.bashrc
ip link set lo up; ip address add $1/24 dev eth0; ip link set eth0 up; exec $(PATH=$PATH:/usr/sbin command -v sshd) -D -e -f $3/sshd`

func newFarm(t *testing.T, n int) *farm {
	t.Helper()
	f := &farm{dir: t.TempDir(), n: n}
	file := func(name, text string) {
		if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(f.dir, "home/.ssh"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"key", "host"} {
		sh(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(f.dir, name))
	}
	file("sshd", fmt.Sprintf("HostKey %s/host\nAuthorizedKeysFile %[1]s/key.pub\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nUsePAM no\nPidFile none\nMaxStartups 100\n", f.dir))
	key, err := os.ReadFile(filepath.Join(f.dir, "host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	f.gateway = f.namespace(t, "gateway")
	f.at(t, "ip link set lo up; ip link add hub type bridge; ip address add 10.5.0.1/24 dev hub; ip link set hub up")
	known, machines, inventory := "", "carrier: vxlan\nmachines:\n", "all: {children: {gateway: {hosts: {gw: {ansible_connection: local}}}, devices: {hosts: {\n"
	for i := 1; i <= n; i++ {
		address, port := fmt.Sprintf("10.5.0.%d", i+1), fmt.Sprintf("to%d", i)
		ns := f.namespace(t, fmt.Sprint("device", i))
		f.at(t, fmt.Sprintf("ip link add %s master hub up type veth peer name eth0 netns %s", port, filepath.Base(ns)))
		cmd := exec.Command("nsenter", "--net="+ns, "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-ec", device, "bash", address, fmt.Sprint(i), f.dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		f.answers(t, address)
		known += address + " " + string(key)
		machines += fmt.Sprintf("  d%d: {ssh: root@%s, key: %s/key, hosts: 2}\n", i, address, f.dir)
		if i == 1 {
			file("first.yaml", machines)
		}
		inventory += fmt.Sprintf("h%d: {ansible_host: %s, emu_id: %d, emu_ip: 10.0.0.%[1]d, emu_mac: '02:ff:0a:00:00:%02[1]x'},\n", i, address, 100+i)
	}
	file("home/.ssh/known_hosts", known)
	file("machines.yaml", machines)
	file("inventory.yml", inventory+"}}}}\n")
	return f
}

// namespace makes a network namespace that ends with the test.
func (f *farm) namespace(t *testing.T, name string) string {
	t.Helper()
	name = fmt.Sprintf("tvb%d-%d-%s", os.Getpid(), f.n, name)
	sh(t, "ip", "netns", "add", name)
	t.Cleanup(func() { sh(t, "ip", "netns", "delete", name) })
	return "/run/netns/" + name
}

// command is one at the gateway, as a user there types it.
func (f *farm) command(words ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"--net=" + f.gateway}, words...)...)
	cmd.Env = append(os.Environ(), "HOME="+f.dir+"/home", "SSH_AUTH_SOCK=", "ANSIBLE_NOCOLOR=1",
		"ANSIBLE_SSH_ARGS=-o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile="+f.dir+"/home/.ssh/known_hosts", "ANSIBLE_PYTHON_INTERPRETER=/usr/bin/python3")
	return cmd
}

// tuned is what makes Ansible fast here: it asks for no facts, sends its modules through open
// connections and works at all devices at once.
var tuned = []string{"env", "ANSIBLE_GATHERING=explicit", "ANSIBLE_PIPELINING=true", "ANSIBLE_FORKS=20"}

// at runs a script at the gateway.
func (f *farm) at(t *testing.T, script string) string {
	t.Helper()
	out, err := f.command("bash", "-ec", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

// timed returns how long a command at the gateway takes, which must succeed.
func (f *farm) timed(t *testing.T, words ...string) float64 {
	t.Helper()
	start := time.Now()
	if out, err := f.command(words...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(words, " "), err, out)
	}
	return time.Since(start).Seconds()
}

// answers waits until something listens at a device's port 22.
func (f *farm) answers(t *testing.T, address string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		out, err := f.command("bash", "-c", "</dev/tcp/"+address+"/22").CombinedOutput()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s", out)
		}
	}
}

// TestRack compares how long it takes until devices are hosts of an emulated network, and until
// they are not, with playbooks of Ansible that take the same steps over the same SSH: an interface
// for each host with its address, MAC and route, a port of the switch for each, names, and a
// firewall on both sides. Each activation is followed, outside the time, by a ping between two
// devices through the switch.
//
// Ansible runs twice: as it comes, and tuned. To its advantage: SSH connections stay open between
// its runs; and Trivet also measures each way that links take, and starts a daemon at each device.
// To Trivet's: its program is at the devices already, as Python is. The devices share this
// machine's processors.
func TestRack(t *testing.T) {
	if _, err := exec.LookPath("ansible-playbook"); err != nil {
		t.Skip("compares with Ansible: apt install ansible")
	}
	for _, n := range []int{5, 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			load(t)
			f := newFarm(t, n)
			up := []string{binary, "up", fmt.Sprintf("single,%d", n), "--on", f.dir + "/machines.yaml", "--datapath", "bridge", "--controller", "none", "--name", "rack"}
			down := []string{binary, "down", "rack"}
			playbook := func(which string) []string {
				return []string{"ansible-playbook", "-i", f.dir + "/inventory.yml", "--private-key", f.dir + "/key", "-u", "root", "testdata/emulation-" + which + ".yml"}
			}
			f.timed(t, binary, "up", "single,1", "--on", f.dir+"/first.yaml", "--datapath", "bridge", "--controller", "none", "--name", "rack") // brings the program there: they share a home
			f.timed(t, down...)
			var ours, theirs, untuned [2][]float64
			for range *pairs {
				ours[0] = append(ours[0], f.timed(t, up...))
				f.timed(t, binary, "exec", "--lab", "rack", "h1", "--", "ping", "-c", "1", "-W", "5", fmt.Sprint("h", n))
				ours[1] = append(ours[1], f.timed(t, down...))
				theirs[0] = append(theirs[0], f.timed(t, append(tuned, playbook("up")...)...))
				f.timed(t, "ssh", "-i", f.dir+"/key", "-o", "UserKnownHostsFile="+f.dir+"/home/.ssh/known_hosts", "root@10.5.0.2", fmt.Sprintf("ip netns exec emu ping -c 1 -W 5 h%d", n))
				theirs[1] = append(theirs[1], f.timed(t, append(tuned, playbook("down")...)...))
				untuned[0] = append(untuned[0], f.timed(t, playbook("up")...))
				untuned[1] = append(untuned[1], f.timed(t, playbook("down")...))
			}
			for i, what := range []string{"up", "down"} {
				t.Logf("%2d devices  %-4s  trivet %s   ansible %s, %s   tuned %s, %s", n, what, text(ours[i], "s"), text(untuned[i], "s"), text(ratios(untuned[i], ours[i]), "×"),
					text(theirs[i], "s"), text(ratios(theirs[i], ours[i]), "×"))
			}
		})
	}
}
