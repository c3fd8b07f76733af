package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// wrt is what stands for an OpenWrt device: real dropbear, busybox and Open vSwitch in a root file
// system of its own, with a uci and a netifd of the tests' (testdata/openwrt). Its memory is lost
// with its power, its files are not.
type wrt struct {
	*machine
	root string
	on   *exec.Cmd
}

// configs are /etc/config/network in the forms that OpenWrt has had, with what uci would write
// otherwise: comments, spaces, quotes. In the last one, lan2 is in no bridge, or the cable between
// two devices would be a loop.
var configs = map[string]string{
	"dsa": "# by hand\nconfig interface 'loopback'\n\toption device lo\n\toption proto 'static'\n\toption ipaddr \"127.0.0.1\"\n\n\nconfig device\n  option name 'br-lan'\n" +
		"\toption type 'bridge'\n\tlist ports 'lan1'\n\tlist ports 'lan2'\n\tlist ports 'lan3'\n\tlist ports 'lan4'\n\n" +
		"config interface 'lan'\n\toption device 'br-lan'\n\toption proto 'static'\n\toption ipaddr '%s'\n",
	"vlans": "config device 'bridge'\n\toption name 'br-lan'\n\toption type 'bridge'\n\nconfig bridge-vlan\n\toption device 'br-lan'\n\toption vlan '1'\n" +
		"\tlist ports 'lan1:u*'\n\tlist ports 'lan2:u*'\n\tlist ports lan3:t\n\tlist ports 'lan4:u*'\n\nconfig interface 'lan'\n\toption device 'br-lan'\n\toption proto 'static'\n\toption ipaddr '%s'\n",
	"ifname": "config interface lan\n\toption ifname \"lan1 lan3 lan4\"\n\toption type bridge\n\toption proto static\n\toption ipaddr %s\n" +
		"config interface dmz\n\toption ifname lan2\n\toption proto static\n\toption ipaddr 10.55.0.1\n",
}

// newWrt makes a device, whose port lan4 leads to a bridge of the head. It is off.
func newWrt(t *testing.T, head *machine, address, form string) *wrt {
	t.Helper()
	for _, program := range []string{"dropbear", "busybox", "ovs-vswitchd"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("there is no " + program)
		}
	}
	w := &wrt{machine: newMachine(t)}
	w.root = filepath.Join(w.dir, "root")
	double, err := filepath.Abs("testdata/openwrt")
	must(t, err)
	w.sh(fmt.Sprintf(`mkdir -p %[1]s && cd %[1]s && mkdir -p bin sbin usr/bin usr/sbin usr/lib usr/lib64 usr/share/openvswitch etc/config etc/dropbear root/.ssh proc sys tmp dev
		cp -r %[2]s/* . && ln -s tmp var && ln -s usr/lib lib && ln -s usr/lib64 lib64
		mount --bind /usr/lib usr/lib && mount --bind /usr/lib64 usr/lib64 && mount --bind /dev dev
		cp /bin/busybox bin/ && for applet in $(busybox --list); do [ -e sbin/$applet ] || [ $applet = busybox ] || ln -s busybox bin/$applet; done
		cp -L $(which dropbear) $(which ovsdb-server) $(which ovs-vswitchd) $(which ip) usr/sbin/ && mv usr/sbin/ip sbin/ip-full && cp usr/sbin/ovs-vswitchd usr/sbin/ofdatapath
		cp -L $(which ovs-vsctl) $(which ovs-ofctl) $(which ovsdb-tool) /usr/bin/python3 usr/bin/
		cp /usr/share/openvswitch/vswitch.ovsschema usr/share/openvswitch/
		echo root::0:0:root:/root:/bin/sh >etc/passwd; echo /bin/sh >etc/shells; chmod 700 root root/.ssh
		dropbearkey -t ed25519 -f etc/dropbear/key >/dev/null 2>&1; cp %[3]s/.ssh/id_ed25519.pub root/.ssh/authorized_keys; chmod 600 root/.ssh/authorized_keys
		echo "config ofswitch" >etc/config/openflow`, w.root, double, head.dir))
	w.write("etc/config/network", fmt.Sprintf(configs[form], address))
	w.joins("lan4", head, "to-"+strings.ReplaceAll(address, ".", "-"))
	head.sh("ip link set to-" + strings.ReplaceAll(address, ".", "-") + " master hub up")
	return w
}

func (w *wrt) write(name, text string) {
	must(w.t, os.WriteFile(filepath.Join(w.root, name), []byte(text), 0o644))
}

// joins makes a cable from a port of the device to an interface of another machine.
func (w *wrt) joins(port string, other *machine, nic string) {
	w.t.Helper()
	cable := exec.Command("ip", "link", "add", port, "netns", strconv.Itoa(w.init.Process.Pid), "type", "veth", "peer", "name", nic, "netns", strconv.Itoa(other.init.Process.Pid))
	if out, err := cable.CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
}

// power switches the device on.
func (w *wrt) power() {
	w.t.Helper()
	w.sh("for port in lan1 lan2 lan3; do ip link show $port >/dev/null 2>&1 || ip link add $port type veth peer name $port-off; done")
	w.on = w.command("unshare", "--pid", "--mount", "--fork", "--kill-child", "chroot", w.root, "/bin/busybox", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "/bin/sh", "/sbin/boot")
	w.on.Stderr = os.Stderr
	must(w.t, w.start(w.on))
}

// cut takes the device's power away.
func (w *wrt) cut() {
	must(w.t, w.on.Process.Kill())
	_ = w.on.Wait()
	eventually(w.t, "nothing runs there", func() bool { return len(w.pids("dropbea[r]")) == 0 })
}

// at runs a command at the device, by SSH from the head.
func (w *wrt) at(head *machine, address, command string) result {
	return head.do(head.command("ssh", "-o", "UserKnownHostsFile="+head.dir+"/.ssh/known_hosts", "-i", head.dir+"/.ssh/id_ed25519", "root@"+address, command))
}

// state is all files of the device, and its interfaces.
func (w *wrt) state() string {
	w.t.Helper()
	return w.sh("cd " + w.root + "; find etc sbin root -type f | sort | xargs md5sum; ip -o link | sed 's/@[^:]*//' | awk '{print $2, $3 ~ /[<,]UP[,>]/}' | sort; ip -br addr | awk '/10.5/ {print $1, $3}'; ip -o link | grep -o '^[0-9]*: [^@:]*\\| master [^ ]*' | grep -B 1 master || :; cat /proc/sys/net/ipv4/conf/all/arp_notify")
}

// TestOpenWrt proves that OpenWrt devices, with the network configured in each of the forms that
// there are, become switches of a lab, by Open vSwitch and by a user-space agent, and Trivet's
// controller theirs; that the lab is used as any other; that every file of theirs is as before,
// byte by byte, once the lab is down, and their bridges are; and that the same happens without the
// lab's doing when a device loses its power, and when the head is gone.
func TestOpenWrt(t *testing.T) {
	t.Parallel()
	h := newMachine(t)
	h.env = []string{"HOME=" + h.dir}
	h.sh("ip link add hub type bridge && ip addr add 10.5.0.1/24 dev hub && ip link set hub up && mkdir -p .ssh && ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519")
	w1, w2 := newWrt(t, h, "10.5.0.2", "dsa"), newWrt(t, h, "10.5.0.3", "ifname")
	w1.joins("lan1", h, "eth1")
	w2.joins("lan1", h, "eth2")
	w1.joins("lan2", w2.machine, "lan2")
	h.withControllers("ovs-testcontroller")
	known := ""
	for i, w := range []*wrt{w1, w2} {
		w.power()
		known += fmt.Sprintf("10.5.0.%d %s\n", i+2, strings.TrimSpace(w.sh("dropbearkey -y -f "+w.root+"/etc/dropbear/key | grep ^ssh")))
	}
	h.file(".ssh/known_hosts", known)
	h.file("rack.yaml", `gateway: {ssh: local, inner: hub}
keep: 30s
devices:
  wrt-1: {ssh: root@10.5.0.2, kind: openwrt, ports: [lan1, lan2, lan3]}
  wrt-2: {ssh: root@10.5.0.3, kind: openwrt, ports: [lan1, lan2, lan3], labels: [openwrt]}
wires:
  - wrt-1/lan1 -- gateway/eth1
  - wrt-2/lan1 -- gateway/eth2
  - wrt-1/lan2 -- wrt-2/lan2
`)
	h.file("lab.yaml", "nodes:\n  s1: {switch: {on: wrt-1}}\n  s2: {switch: {on: openwrt}}\n  h[1-2]: host\nlinks: [s1 -- h1, s2 -- h2, s1 -- s2]\n")
	for i, w := range []*wrt{w1, w2} {
		eventually(t, "dropbear answers", func() bool { return w.at(h, fmt.Sprintf("10.5.0.%d", i+2), "true").code == 0 })
	}
	were := []string{w1.state(), w2.state()}
	unchanged := func() {
		t.Helper()
		for i, w := range []*wrt{w1, w2} {
			for end := time.Now().Add(2 * time.Minute); w.state() != were[i] && time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			}
			if now := w.state(); now != were[i] {
				t.Fatalf("wrt-%d is not what it was:\n%s", i+1, differing(were[i], now))
			}
		}
	}

	up := []string{"up", "lab.yaml", "--on", "rack.yaml", "--name", h.name, "--wait", "3m"}
	lab := func(more string) {
		h.file("lab.yaml", more+"nodes:\n  s1: {switch: {on: wrt-1}}\n  s2: {switch: {on: openwrt}}\n  h[1-2]: host\nlinks: [s1 -- h1, s2 -- h2, s1 -- s2]\n")
	}
	reach := func() bool { return strings.Contains(h.run("ping", "h1", "h2", "-c", "1").String(), "1 received") }

	lab("")
	contains(t, h.ok(up...), "2 OpenWrt devices as switches", "across: 3 links by wire")
	contains(t, h.ok("ping", "--all"), "2 sent, 2 received")
	contains(t, h.ok("inspect"), "on wrt-1", "a switch by ovs, over SSH", "ovs", "wire")
	contains(t, h.ok("flows", "s1"), "learning")
	contains(t, h.ok("path", "h1", "h2"), "h1 → s1 → s2 → h2")
	contains(t, h.exec("s1", "cat /proc/$$/comm; echo $SSH_CONNECTION"), "sh", "10.5.0.1")
	if code := h.run("exec", "s2", "--", "sh", "-c", "exit 7").code; code != 7 {
		t.Errorf("a program at a device that exits with 7 exits with %d", code)
	}
	contains(t, h.want(1, "up", "lab.yaml", "--on", "rack.yaml", "--name", h.name+"b").String(), "it is a switch of", h.name, "already")
	h.ok("link", "set", "s1-s2", "down")
	if reach() {
		t.Error("packets cross a wire that is down")
	}
	h.ok("link", "set", "s1-s2", "up")
	eventually(t, "packets cross again", reach)
	contains(t, h.run("link", "set", "s1-s2", "delay=5ms").String(), "exit 1", "wrt-1 cannot limit, delay or lose what it sends")
	lab("defaults: {switch: {fail_mode: standalone}}\n")
	h.ok("apply", "lab.yaml", "--lab", h.name)
	eventually(t, "switches that were made anew forward", reach)
	h.killDaemon()
	h.ok("resume", h.name)
	eventually(t, "a lab that was resumed forwards", reach)
	h.ok("down", h.name)
	unchanged()

	// Without its controller, a switch forwards by learning or, of what is new, nothing.
	for mode, forwards := range map[string]bool{"standalone": true, "secure": false} {
		lab("controller: ovs-testcontroller\ndefaults: {switch: {fail_mode: " + mode + "}}\n")
		h.ok(up...)
		eventually(t, "the controller decides", reach)
		h.sh("kill -9 " + h.pids("ovs-testcontrolle[r]")[0])
		h.exec("h1", "ip neigh flush all")
		if forwards {
			eventually(t, "switches forward by learning", reach)
		} else if time.Sleep(20 * time.Second); reach() { // longer than the others take
			t.Error("secure, without a controller: it forwards what is new")
		}
		h.ok("down", h.name)
		unchanged()
	}

	// The device loses its power while it becomes a switch, and while it is one.
	lab("")
	w1.at(h, "10.5.0.2", "touch /tmp/slow")
	failing := h.command(trivet, up...)
	said := h.startOutput(failing)
	eventually(t, "the device is changed", func() bool { return w1.at(h, "10.5.0.2", "grep 1 /proc/sys/net/ipv4/conf/all/arp_notify").code == 0 })
	w1.cut()
	wait(t, failing)
	contains(t, said.String(), "wrt-1")
	w1.power()
	eventually(t, "the device is on", func() bool { return w1.at(h, "10.5.0.2", "true").code == 0 }) // before, its interfaces come and go
	unchanged()
	h.run("down", h.name)

	// The head is gone.
	h.ok(up...)
	h.killDaemon()
	unchanged()
	h.run("down", h.name)
	unchanged()

	// The other agent.
	list, err := os.ReadFile(filepath.Join(h.dir, "rack.yaml"))
	must(t, err)
	h.file("rack.yaml", strings.ReplaceAll(string(list), "kind: openwrt", "kind: openwrt, agent: ofswitch"))
	contains(t, h.ok(up...), "up in")
	contains(t, h.ok("ping", "--all"), "2 sent, 2 received")
	contains(t, h.ok("inspect"), "a switch by ofswitch")
	h.ok("down", h.name)
	unchanged()

	// What cannot be is said before anything is changed.
	h.file("rack.yaml", strings.NewReplacer("lan3", "lan4", "wrt-1/lan1", "wrt-1/lan4").Replace(string(list)))
	contains(t, h.want(1, up...).String(), "SSH reaches it by lan4")
	h.file("rack.yaml", strings.Replace(string(list), "  - wrt-1/lan2 -- wrt-2/lan2\n", "", 1))
	contains(t, h.want(1, up...).String(), "lab.yaml:5", "no wire that is still free joins wrt-1 and wrt-2")
	unchanged()
}
