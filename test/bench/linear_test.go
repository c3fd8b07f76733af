package bench

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/internal/clsact"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/topology"
)

var lengths = flag.String("lengths", "100,1000,5000,10000", "switches of TestLinear, and as many hosts")

// TestLinear measures lines of switches with a host each, and beside each the bare loop:
// namespaces, settings, cgroups, cables, addresses and programs at the switches' devices as a lab
// of that size has them, and nothing else. Of both it is the time of processors that counts, as a
// busy machine makes the other longer.
func TestLinear(t *testing.T) {
	load(t)
	for _, word := range strings.Split(*lengths, ",") {
		n, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		for range *pairs {
			hosts := min(n, mostBare())
			bare := bareLoop(t, hosts) * float64(n) / float64(hosts)
			var before, after unix.Rusage
			_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &before)
			s, up := bring(t, "linear", "linear,"+word)
			_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &after)
			work := processor(s.pid) + seconds(after) - seconds(before)
			_, most := s.memory()
			time.Sleep(time.Minute) // discovery and the first readings are over
			woken := switches(s.pid)
			share := s.idle()
			woken = (switches(s.pid) - woken) / steady.Seconds()
			now, _ := s.memory()
			down := processor(s.pid)
			took := s.downWork(&down)
			t.Logf("linear,%d: up %.1f s, %.2f s of a processor (%.2f ms a switch), bare loop %.2f s, ratio %.2f; RSS at most %.0f MB, at rest %.0f MB; "+
				"at rest %.1f %% of a core, %.0f wake-ups a second; down %.1f s, %.2f s of a processor",
				n, up, work, 1000*work/float64(n), bare, work/bare, most/1024, now/1024, 100*share, woken, took, down)
		}
	}
}

// downWork takes the lab down and says how long that took, and how much of a processor since the
// daemon had used that much of one.
func (s *scaled) downWork(work *float64) (took float64) {
	var last float64
	done := make(chan float64)
	go func() { done <- s.down() }()
	for {
		select {
		case took = <-done:
			*work = last - *work
			return took
		case <-time.After(5 * time.Millisecond):
			last = max(last, processor(s.pid)) // its time is not known any more once it has ended
		}
	}
}

func seconds(r unix.Rusage) float64 {
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}

// switches is how often threads of a process have stopped to wait, which is how often they were
// woken.
func switches(pid int) (sum float64) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, file := range files {
		b, _ := os.ReadFile(file)
		for line := range strings.Lines(string(b)) {
			if after, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
				v, _ := strconv.ParseFloat(strings.TrimSpace(after), 64)
				sum += v
			}
		}
	}
	return sum
}

// bareSettings are those that the namespace of a host has.
var bareSettings = [][2]string{
	{"sys/net/ipv6/conf/all/disable_ipv6", "1"}, {"sys/net/ipv6/conf/default/disable_ipv6", "1"}, {"sys/net/ipv4/ping_group_range", "0 2147483647"},
}

// bareLoop makes as many hosts as a lab of that size, and no switches, and says how much of a
// processor that takes, in seconds. Everything is gone when it returns.
func bareLoop(t *testing.T, n int) float64 {
	t.Helper()
	var before, after unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
	fabric, err := inside.New()
	if err != nil {
		t.Fatal(err)
	}
	files := []*os.File{fabric}
	defer func() {
		_ = inside.File(fabric, netbatch.DeleteGroup)
		for _, f := range files {
			f.Close()
		}
	}()
	hosts := make([]*os.File, n)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
				return err
			}
			template, err := os.Open("/proc/thread-self/ns/mnt")
			if err != nil {
				return err
			}
			defer template.Close()
			proc := -1
			defer func() { unix.Close(proc) }()
			for i := range n {
				if i%64 == 0 { // the kernel's lists of one procfs would grow with the square
					unix.Close(proc)
					if proc, err = bareProcfs(); err != nil {
						return err
					}
				}
				if err := unix.Setns(int(template.Fd()), unix.CLONE_NEWNS); err != nil {
					return err
				}
				if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS); err != nil {
					return err
				}
				for _, kind := range []string{"net", "mnt", "uts"} {
					f, err := os.Open("/proc/thread-self/ns/" + kind)
					if err != nil {
						return err
					}
					files = append(files, f)
					if kind == "net" {
						hosts[i] = f
					}
				}
				if err := unix.Sethostname(fmt.Appendf(nil, "h%d", i)); err != nil {
					return err
				}
				for _, s := range bareSettings {
					fd, err := unix.Openat(proc, s[0], unix.O_WRONLY|unix.O_CLOEXEC, 0)
					if err != nil {
						return err
					}
					_, err = unix.Write(fd, []byte(s[1]))
					unix.Close(fd)
					if err != nil {
						return err
					}
				}
			}
			return nil
		}()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	groups, err := cgroup.Find()
	if err == nil {
		err = groups.MakeLab(bareLab)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = groups.Remove(bareLab) }()
	for i := range n {
		for _, name := range []string{"h", "s"} {
			if err := groups.Make(bareLab, &topology.Node{Name: fmt.Sprint(name, i)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := barePlug(fabric, hosts); err != nil {
		t.Fatal(err)
	}
	if err := inside.File(fabric, func() error { return bareAttach(n) }); err != nil {
		t.Fatal(err)
	}
	_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
	return seconds(after) - seconds(before)
}

// mostBare is how many hosts the bare loop can make: it keeps their namespaces by open files.
func mostBare() int {
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return int(limit.Cur)/3 - 100
}

func bareProcfs() (int, error) {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
}

const (
	bareLab = "bare-loop"
	first   = 1 << 16 // index of the switches' devices
)

// bareAttach attaches a program to each of the switches' devices.
func bareAttach(n int) error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "bare", Type: ebpf.SchedCLS, License: "MIT",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		return err
	}
	defer program.Close()
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	for i := range n {
		if err := h.QdiscReplace(clsact.Qdisc(first + i)); err != nil {
			return err
		}
		if err := h.FilterReplace(clsact.Ingress(first+i, program.FD(), "bare")); err != nil {
			return err
		}
	}
	return nil
}

// barePlug joins each host to the switches' namespace by a veth pair, gives it an address and sets
// everything up.
func barePlug(fabric *os.File, hosts []*os.File) error {
	b, err := netbatch.In(fabric)
	if err != nil {
		return err
	}
	defer b.Close()
	for i, h := range hosts {
		b.AddVeth(netbatch.Device{Name: fmt.Sprint("s", i), Index: first + i}, netbatch.Device{Name: "eth0", Index: 11, NS: h})
	}
	for i := range hosts {
		b.SetUp(fmt.Sprint("s", i), first+i, true)
	}
	if err := b.Flush(); err != nil {
		return err
	}
	for i, h := range hosts {
		b, err := netbatch.In(h)
		if err != nil {
			return err
		}
		b.SetUp("lo", 1, true)
		b.AddAddress(11, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 8))
		b.SetUp("eth0", 11, true)
		b.GetLink("eth0", 11) // a lab waits for its carrier
		err = b.Flush()
		b.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
