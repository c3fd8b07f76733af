package fabric

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"trivet.dev/trivet/datapath/embedded/cache"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
)

// logged is a network of switches whose state is written.
type logged struct {
	*testing.T
	network  *pipeline.Network
	switches []*pipeline.Switch
	packets  *pipeline.Processor
	credited []cache.Credited
	log      stateLog
}

func newLogged(t *testing.T, switches int) *logged {
	l := &logged{T: t, network: pipeline.NewNetwork(), log: stateLog{name: filepath.Join(t.TempDir(), "switches")}}
	l.packets = pipeline.NewProcessor(l.network)
	t.Cleanup(l.log.close)
	for i := range switches {
		l.switches = append(l.switches, l.more(uint64(i+1)))
	}
	return l
}

func (l *logged) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *logged) more(dpid uint64) *pipeline.Switch {
	s, err := l.network.Add(pipeline.Config{DatapathID: dpid})
	l.must(err)
	_, err = s.AddPort(openflow.Port{Number: 1}, 0)
	l.must(err)
	return s
}

func (l *logged) packet(s *pipeline.Switch) {
	l.packets.Receive(s.Port(1), &pipeline.Packet{Data: make([]byte, 60)}, time.Second)
}

func (l *logged) flow(s *pipeline.Switch) {
	l.must(s.FlowMod(openflow.NewFlowMod(openflow.FlowAdd, 5, openflow.NewMatch(openflow.InPort(1))), 0))
}

func (l *logged) take(marks pipeline.Marks) ([]pipeline.Saved, []uint64, []cache.Credited) {
	changed, gone := l.network.Save(marks, func(save func()) { save() })
	return changed, gone, slices.Clone(l.credited)
}

// save saves, proves that what is in the file is what the switches are, and returns the file.
func (l *logged) save() []byte {
	l.Helper()
	l.must(l.log.save(5, l.take))
	content, err := os.ReadFile(l.log.name)
	l.must(err)
	want := &switchState{Origin: 5}
	want.Switches, _, want.Credited = l.take(pipeline.Marks{})
	if is := l.read(content, 0); !reflect.DeepEqual(is, inOrder(want)) {
		l.Fatalf("the file has\n%+v\nthe switches are\n%+v", is, want)
	}
	return content
}

// read reads what is in a file, which ends with that many bytes of what is not whole.
func (l *logged) read(content []byte, torn int) *switchState {
	l.Helper()
	s, lost, err := decodeSwitchState(content)
	l.must(err)
	if lost != torn {
		l.Errorf("%d bytes are told not to be whole, not %d", lost, torn)
	}
	return inOrder(s)
}

func inOrder(s *switchState) *switchState {
	slices.SortFunc(s.Switches, func(a, b pipeline.Saved) int { return cmp.Compare(a.DatapathID, b.DatapathID) })
	return s
}

// TestStateLog proves that the file has what the switches are after each change, that one switch
// that has changed costs no more than one, and that nothing counts of what was being added when a
// daemon died, wherever that ended.
func TestStateLog(t *testing.T) {
	for _, c := range []struct {
		what    string
		most    int // switches that may be written
		changed func(*logged)
	}{
		{"a packet", 1, func(l *logged) { l.packet(l.switches[7]) }},
		{"a flow entry", 1, func(l *logged) { l.flow(l.switches[8]) }},
		{"packets by an entry of the kernel", 0, func(l *logged) { l.credited = append(l.credited, cache.Credited{Entry: 3, Packets: 4}) }},
		{"a switch less", 0, func(l *logged) { l.network.Remove(l.switches[9], 0) }},
		{"a switch more", 1, func(l *logged) { l.more(10_000) }},
		{"another switch in place of one", 1, func(l *logged) { l.network.Remove(l.switches[9], 0); l.more(10) }},
		{"many flow entries", 3*recordSwitches - 10, func(l *logged) {
			for _, s := range l.switches[10:] {
				l.flow(s)
			}
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			l := newLogged(t, 3*recordSwitches)
			l.save()
			all := l.save() // once more, as packets may have been on their way
			was := l.read(all, 0)
			c.changed(l)
			after := l.save()
			if len(after) <= len(all) || !bytes.HasPrefix(after, all) {
				t.Fatal("what has changed is not added")
			}
			const each = 200 // more than a switch of these takes
			if added := len(after) - len(all); added > each*(c.most+1) {
				t.Errorf("%d bytes are added to %d", added, len(all))
			}
			for size := len(all); size < len(after); size += 1 + (len(after)-len(all))/500 {
				if is := l.read(after[:size], size-len(all)); !reflect.DeepEqual(is, was) {
					t.Fatalf("with %d of %d bytes it is not what it was before", size-len(all), len(after)-len(all))
				}
			}
		})
	}
}

// TestStateLogIdle proves that nothing is written, and no switch taken for it, while nothing
// changes, and that what has changed is written until it is still, and not after that.
func TestStateLogIdle(t *testing.T) {
	l := newLogged(t, 100)
	var taken []int
	take := func(marks pipeline.Marks) ([]pipeline.Saved, []uint64, []cache.Credited) {
		changed, gone, credited := l.take(marks)
		taken = append(taken, len(changed))
		return changed, gone, credited
	}
	var sizes []int64
	for turn := range 8 {
		if turn == 4 {
			l.packet(l.switches[3])
		}
		l.must(l.log.save(5, take))
		at, err := os.Stat(l.log.name)
		l.must(err)
		sizes = append(sizes, at.Size())
	}
	if want := []int{100, 100, 0, 0, 1, 1, 0, 0}; !slices.Equal(taken, want) {
		t.Errorf("%v switches are taken, not %v", taken, want)
	}
	for turn, grows := range []bool{false, false, false, true, true, false, false} {
		if (sizes[turn+1] > sizes[turn]) != grows {
			t.Errorf("turn %d: from %d to %d bytes", turn+1, sizes[turn], sizes[turn+1])
		}
	}
}

// TestStateLogAnew proves that the file is written anew before what is added makes it much more
// than twice as large, where all switches have changed, and after a time when nothing could be
// written.
func TestStateLogAnew(t *testing.T) {
	l := newLogged(t, 300)
	l.save()
	for last, anew := 0, 0; anew < 3; {
		for _, s := range l.switches[1:] { // of all it would be written anew each time
			l.packet(s)
		}
		l.must(l.log.save(5, l.take))
		if l.log.size < last {
			anew++
		}
		if last = l.log.size; last > 3*l.log.whole+lessAnew {
			t.Fatalf("%d bytes, of %d for all switches", last, l.log.whole)
		}
	}
	at, err := os.Stat(l.log.name)
	l.must(err)
	if at.Size() != int64(l.log.size) {
		t.Errorf("it has %d bytes, not %d", at.Size(), l.log.size)
	}
	l.save()
	for range 2 {
		for _, s := range l.switches {
			l.packet(s)
		}
		if l.save(); l.log.size != l.log.whole {
			t.Errorf("%d bytes where all switches have changed, of %d", l.log.size, l.log.whole)
		}
	}
	l.save()           // once more, as packets may have been on their way
	l.log.file.Close() // as where there is no room
	l.packet(l.switches[3])
	if err := l.log.save(5, l.take); err == nil {
		t.Error("no error where nothing can be written")
	}
	l.save()
}

// TestDamagedState proves that what is not a whole state is told from one.
func TestDamagedState(t *testing.T) {
	l := newLogged(t, recordSwitches+2)
	all := l.save()
	for size := range len(all) {
		if _, _, err := decodeSwitchState(all[:size]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d of %d bytes: %v", size, len(all), err)
		}
	}
	for i := range all {
		damaged := slices.Clone(all)
		damaged[i] ^= 0x10
		if _, _, err := decodeSwitchState(damaged); err == nil {
			t.Fatalf("byte %d of %d is another one, and nobody notices", i, len(all))
		}
	}
}

// TestRests proves how often the state is written: each second, if that takes next to nothing;
// after a change at most a fiftieth of a processor, and else less, but not as seldom as one likes.
func TestRests(t *testing.T) {
	for _, c := range []struct{ took, changed, calm time.Duration }{
		{0, saveSoon, time.Second},
		{500 * time.Microsecond, saveSoon, time.Second},
		{2 * time.Millisecond, 100 * time.Millisecond, 4 * time.Second},
		{10 * time.Millisecond, 500 * time.Millisecond, 20 * time.Second},
		{100 * time.Millisecond, 5 * time.Second, 200 * time.Second},
		{time.Second, 50 * time.Second, 5 * time.Minute},
	} {
		least, more := rests(c.took)
		if calm := least + max(more, 0); least != c.changed || calm != c.calm {
			t.Errorf("%v to write: %v after a change and %v without, not %v and %v", c.took, least, calm, c.changed, c.calm)
		}
	}
}

// TestThreadTime proves that waiting takes no time of those by which the state is written, and that
// work does.
func TestThreadTime(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := threadTime()
	time.Sleep(50 * time.Millisecond)
	if took := threadTime() - begin; took >= 50*time.Millisecond {
		t.Errorf("50 ms of waiting took %v of a processor", took)
	}
	begin = threadTime()
	for threadTime()-begin < 5*time.Millisecond { // ends only where work counts
	}
}
