package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"trivet.dev/trivet/controller/store/etcd"
	"trivet.dev/trivet/test/servers"
)

// fence is a switch that orders its masters by generation.
type fence struct {
	mu         sync.Mutex
	generation uint64
	master     int
}

// use is what a member does to a switch: it claims it by a generation, or changes it.
type use struct {
	dpid   uint64
	claims uint64 // 0: it changes it
}

// fenced is the model of a switch of which nobody obeys two masters out of order: a claim is taken
// when no later one was, and a change is when who makes it has claimed last.
func fenced() porcupine.Model {
	type state struct {
		generation uint64
		master     int
	}
	type in struct {
		use
		member int
	}
	return porcupine.Model{
		Init: func() any { return state{master: -1} },
		Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
			by := map[uint64][]porcupine.Operation{}
			for _, o := range history {
				u := o.Input.(use)
				o.Input = in{u, o.ClientId}
				by[u.dpid] = append(by[u.dpid], o)
			}
			for _, p := range by {
				parts = append(parts, p)
			}
			return parts
		},
		Step: func(s, i, o any) (bool, any) {
			now, op, taken := s.(state), i.(in), o.(bool)
			if op.claims == 0 {
				return taken == (now.master == op.member), now
			}
			may := op.claims > now.generation || op.claims == now.generation && now.master == op.member
			if taken != may {
				return false, now
			}
			if may {
				now = state{op.claims, op.member}
			}
			return true, now
		},
	}
}

// Proves that the model tells: two members whose changes are both taken, and a claim that is taken
// after a later one, are no history of one master after the other.
func TestModel(t *testing.T) {
	at := int64(0)
	op := func(client int, claims uint64, taken bool) porcupine.Operation {
		at += 2
		return porcupine.Operation{ClientId: client, Input: use{1, claims}, Call: at, Output: taken, Return: at + 1}
	}
	for what, c := range map[string]struct {
		history []porcupine.Operation
		good    bool
	}{
		"in order":     {[]porcupine.Operation{op(1, 5, true), op(1, 0, true), op(2, 7, true), op(1, 0, false), op(2, 0, true)}, true},
		"late change":  {[]porcupine.Operation{op(1, 5, true), op(2, 7, true), op(1, 0, true)}, false},
		"late claim":   {[]porcupine.Operation{op(1, 7, true), op(2, 5, true)}, false},
		"same claim":   {[]porcupine.Operation{op(1, 7, true), op(2, 7, true)}, false},
		"lost change":  {[]porcupine.Operation{op(1, 7, true), op(1, 0, false)}, false},
		"late, denied": {[]porcupine.Operation{op(1, 7, true), op(2, 5, false)}, true},
	} {
		if got := porcupine.CheckOperations(fenced(), c.history); got != c.good {
			t.Errorf("%s: %t", what, got)
		}
	}
}

// Proves, with a real etcd that is killed and stands still, and members that die, stand still and
// come back, that what switches are told is as if one member after the other were their master: no
// two members have one generation, and none is obeyed after a later one. TRIVET_CLUSTER_FAULTS is
// for how long, TRIVET_SEED what goes wrong when; a history that is not so is kept.
func TestLinearizable(t *testing.T) {
	length, err := time.ParseDuration(cmp.Or(os.Getenv("TRIVET_CLUSTER_FAULTS"), "8s"))
	if err != nil {
		t.Fatal(err)
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("TRIVET_SEED"), "1"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(length); ; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { linear(t, seed, min(length, 8*time.Second)) })
		if t.Failed() || !time.Now().Before(end) {
			return
		}
	}
}

func linear(t *testing.T, seed uint64, length time.Duration) {
	const members, switches = 4, 5
	server := servers.StartEtcd(t, "http")
	random := rand.New(rand.NewPCG(seed, 2))
	begin := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	fences := make([]fence, switches+1)
	apply := func(client int, u use) {
		call := time.Since(begin)
		f := &fences[u.dpid]
		f.mu.Lock()
		taken := f.master == client+1
		if u.claims != 0 {
			if taken = u.claims >= f.generation; taken { // as a switch does
				f.generation, f.master = u.claims, client+1
			}
		}
		f.mu.Unlock()
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{ClientId: client, Input: u, Call: int64(call), Output: taken, Return: int64(time.Since(begin))})
	}
	type one struct {
		*Member
		stop  context.CancelFunc
		still *sync.RWMutex // held: it stands still before it tells a switch anything
	}
	var lives atomic.Int64
	var over atomic.Bool
	defer over.Store(true)
	sit := func(name string) *one {
		client := int(lives.Add(1)) - 1 // each process is a client of its own
		a, err := etcd.ParseAddress(server.URL + "/linear")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		st, err := etcd.Open(ctx, a)
		if err != nil {
			stop()
			return nil
		}
		o := &one{stop: stop, still: &sync.RWMutex{}}
		tell := func(u use) {
			o.still.RLock()
			defer o.still.RUnlock()
			apply(client, u)
		}
		var mine sync.Map
		o.Member, err = Join(ctx, Options{Store: st, Name: name, Beat: 50 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
			Become: func(dpid, generation uint64) error {
				tell(use{dpid, generation})
				mine.Store(dpid, true)
				return nil
			},
			Cease: func(dpid uint64) {
				tell(use{dpid: dpid}) // a change that was under way
				mine.Delete(dpid)
			}})
		if err != nil {
			stop()
			st.Close()
			return nil
		}
		for d := range uint64(switches) {
			o.Connected(d + 1)
		}
		var changing sync.WaitGroup
		changing.Go(func() { // it changes what it takes for its own, also when it has died: late packets
			for !over.Load() {
				mine.Range(func(dpid, _ any) bool { tell(use{dpid: dpid.(uint64)}); return true })
				time.Sleep(20 * time.Millisecond)
			}
		})
		t.Cleanup(func() { stop(); o.Wait(); changing.Wait(); st.Close() })
		return o
	}
	seats := make([]*one, members)
	for i := range seats {
		seats[i] = sit(fmt.Sprint("m", i))
	}
	for time.Since(begin) < length {
		i := random.IntN(members)
		pause := time.Duration(random.IntN(400)) * time.Millisecond
		switch what := random.IntN(7); {
		case seats[i] == nil:
			seats[i] = sit(fmt.Sprint("m", i))
		case what == 0:
			seats[i].stop()
			seats[i] = nil
		case what < 2:
			seats[i].still.Lock()
			time.Sleep(pause)
			seats[i].still.Unlock()
		case what < 5:
			_ = seats[i].Move(t.Context(), uint64(random.IntN(switches)+1), fmt.Sprint("m", random.IntN(members)))
		case what == 5:
			server.Pause()
			time.Sleep(pause)
			server.Resume()
		default:
			server.Kill()
			server.Start()
		}
		time.Sleep(pause)
	}
	over.Store(true)
	for _, s := range seats {
		if s != nil {
			s.stop()
		}
	}
	for _, s := range seats {
		if s != nil {
			s.Wait()
		}
	}
	mu.Lock()
	defer mu.Unlock()
	model := fenced()
	result, info := porcupine.CheckOperationsVerbose(model, history, time.Minute)
	claims := 0
	owners := map[use]int{}
	for _, o := range history {
		if u := o.Input.(use); u.claims != 0 {
			claims++
			if c, was := owners[u]; was && c != o.ClientId {
				t.Errorf("seed %d: switch %d, generation %d: of the processes %d and %d", seed, u.dpid, u.claims, c, o.ClientId)
			}
			owners[u] = o.ClientId
		}
	}
	if claims < switches {
		t.Errorf("seed %d: only %d claims: nothing was tried", seed, claims)
	}
	t.Logf("seed %d: %d operations, %d claims, %d processes: %s", seed, len(history), claims, lives.Load(), result)
	if result == porcupine.Illegal || t.Failed() {
		file := filepath.Join(os.TempDir(), fmt.Sprintf("trivet-cluster-%d.html", seed))
		t.Errorf("seed %d: not linearizable: %s; %v", seed, file, porcupine.VisualizePath(model, info, file))
	}
}
