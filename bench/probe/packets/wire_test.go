package packets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
)

// TestMain makes the test's own program an instrument where it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Command {
		if err := Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// wire is two namespaces with a veth pair between them: 10.9.0.1 and fd09::1 at one end, 10.9.0.2
// and fd09::2 at the other.
type wire struct {
	ends    [2]*os.File // of the namespaces
	devices [2]string
	pinned  bool // the first end's instruments stay at one processor
}

var addresses4 = [2]netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")}
var addresses6 = [2]netip.Addr{netip.MustParseAddr("fd09::1"), netip.MustParseAddr("fd09::2")}

// newWire makes one, which goes with the test.
func newWire(t testing.TB) *wire {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("this test makes namespaces, which needs root")
	}
	w := &wire{devices: [2]string{"near", "far"}}
	for i := range 2 {
		ns, err := inside.New()
		must(t, err)
		w.ends[i] = ns
		t.Cleanup(func() { w.ends[i].Close() })
	}
	must(t, w.at(0, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "near"}, PeerName: "far", PeerNamespace: netlink.NsFd(w.ends[1].Fd())})
	}))
	for i := range 2 {
		must(t, w.at(i, func() error { return w.configure(i) }))
	}
	return w
}

// configure gives an end its addresses.
func (w *wire) configure(i int) error {
	link, err := netlink.LinkByName(w.devices[i])
	if err != nil {
		return err
	}
	a4 := &netlink.Addr{IPNet: netlink.NewIPNet(addresses4[i].AsSlice())}
	a4.Mask = []byte{255, 255, 255, 0}
	a6, err := netlink.ParseAddr(addresses6[i].String() + "/64")
	if err != nil {
		return err
	}
	a6.Flags = unix.IFA_F_NODAD // no second without it
	return errors.Join(netlink.LinkSetUp(link), netlink.AddrAdd(link, a4), netlink.AddrAdd(link, a6))
}

// introduce lets the kernel at an end know the other's hardware address, for tests that do not
// greet.
func (w *wire) introduce(t testing.TB) {
	t.Helper()
	must(t, w.at(0, func() error {
		_, err := findWay(addresses4[1])
		return err
	}))
}

// node is an end in which instruments run.
func (w *wire) node(i int) Node {
	return func(ctx context.Context, in io.Reader, out io.Writer) error {
		cmd := exec.CommandContext(ctx, "/proc/self/exe", Command)
		cmd.Stdout, cmd.Stderr = out, os.Stderr
		input, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(input, in)
			input.Close()
		}()
		start := cmd.Start
		if i == 0 && w.pinned {
			start = func() error { return errors.Join(pin(), cmd.Start()) }
		}
		if err := w.at(i, start); err != nil {
			return err
		}
		return cmd.Wait()
	}
}

// pin keeps the thread, and what it starts, at one of its processors.
func pin() error {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	return unix.SchedSetaffinity(0, &one)
}

// at runs f on a thread of its own at an end.
func (w *wire) at(i int, f func() error) error { return inside.File(w.ends[i], f) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
