package sites

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"sync"
	"time"

	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

// Spread turns a lab that is about to come up into one over the machines of a list and this one: it
// connects to them, copies the program there, and places the nodes.
func Spread(ctx context.Context, s *lab.State, list *site.List) error {
	for _, m := range list.Sites() {
		if name := PartName(s.Name, m.Name); !lab.NamePattern.MatchString(name) {
			return fmt.Errorf("the part at %s would be called %s, which is too long: give the lab a shorter name, or the site", m.Name, name)
		}
	}
	if err := bondHere(list); err != nil {
		return err
	}
	user, err := site.UserOf(s.Owner)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	cores := map[string]float64{topology.Head: float64(runtime.NumCPU())}
	err = parallel.All(list.Sites(), func(m *site.Machine) error {
		if m.Hosts > 0 {
			return nil // its number of cores does not matter, and it may not be needed
		}
		f, err := survey(ctx, m, user)
		mu.Lock()
		defer mu.Unlock()
		cores[m.Name] = float64(f.Cores)
		return err
	})
	if err != nil {
		return err
	}
	if err := Place(s.Topology, list, cores, nil); err != nil {
		return err
	}
	if err := Check(s.Topology); err != nil {
		return err
	}
	if err := checkDevices(s.Topology, list); err != nil {
		return err
	}
	s.Target, s.Sites = Target, list
	return nil
}

func survey(ctx context.Context, m *site.Machine, u *site.User) (site.Facts, error) {
	return askOnce[site.Facts](ctx, m, u, "/v1/facts")
}

// askOnce sends a machine one request, over a connection of its own.
func askOnce[T any](ctx context.Context, m *site.Machine, u *site.User, path string) (out T, err error) {
	s, err := site.Open(ctx, m, u)
	if err != nil {
		return out, err
	}
	defer s.Close()
	return site.Call[T](ctx, s, "GET", path, nil)
}

// Environments returns the environments of machines, with the versions of programs there, and the
// errors of those that could not be reached, by name.
func Environments(ctx context.Context, machines []*site.Machine, owner int,
	tools []string) (map[string]environment.Record, map[string]error) {
	records, wrong := map[string]environment.Record{}, map[string]error{}
	user, err := site.UserOf(owner)
	var mu sync.Mutex
	_ = parallel.All(machines, func(m *site.Machine) error {
		var r environment.Record
		err := err
		if err == nil {
			r, err = askOnce[environment.Record](ctx, m, user, "/v1/environment?"+url.Values{"tool": tools}.Encode())
		}
		mu.Lock()
		defer mu.Unlock()
		if records[m.Name] = r; err != nil {
			delete(records, m.Name)
			wrong[m.Name] = err
		}
		return nil
	})
	return records, wrong
}

// Examined is what doctor finds out about a machine.
type Examined struct {
	site.Facts
	RTT      time.Duration   `json:"rtt_ns"`    // of a request through the SSH connection, the shortest of several
	Offset   time.Duration   `json:"offset_ns"` // how far its clock is ahead of this one
	Within   time.Duration   `json:"within_ns"` // the offset's error is at most this
	Findings []local.Finding `json:"findings"`  // of its kernel, as doctor would print them there
	Err      error           `json:"-"`         // it cannot be a site
	Problem  string          `json:"problem,omitempty"`
}

// Found is what doctor finds out about a list of machines.
type Found struct {
	Machines map[string]Examined `json:"machines"`
	Carriers []lab.Carried       `json:"carriers"` // between each two that can be sites
}

// bandwidthTime is how long doctor sends between two machines to measure bandwidth.
const bandwidthTime = 500 * time.Millisecond

// Examine examines all machines of a list at once, then the carriers between them; those from this
// machine only if this process may make tunnels. It calls begins with how many carriers there are,
// and how long measuring them takes.
func Examine(ctx context.Context, list *site.List, owner int,
	begins func(pairs int, takes time.Duration)) (out Found, err error) {
	user, err := site.UserOf(owner)
	if err != nil {
		return out, err
	}
	if err := bondHere(list); err != nil {
		return out, err
	}
	if list.Head.NIC == site.BondName { // made only when a lab needs it
		list.Head.NIC = list.Head.Bond[0]
	}
	var mu sync.Mutex
	out.Machines, out.Carriers = map[string]Examined{}, []lab.Carried{}
	reached := map[string]*site.Site{}
	_ = parallel.All(list.Sites(), func(m *site.Machine) error {
		var x Examined
		s, err := site.Open(ctx, m, user)
		if err == nil {
			x, err = examine(ctx, s)
		}
		if err != nil {
			x.Err, x.Problem = err, err.Error()
		}
		mu.Lock()
		defer mu.Unlock()
		if out.Machines[m.Name] = x; s != nil {
			reached[m.Name] = s
		}
		return nil
	})
	defer func() {
		for _, s := range reached {
			s.Close()
		}
	}()
	at, names := map[string]gauges{}, []string{}
	if os.Geteuid() == 0 && !list.Head.Only {
		at[topology.Head], names = gaugesHere, append(names, topology.Head)
	}
	addresses, heads := map[string]netip.Addr{}, map[string]netip.Addr{}
	for _, m := range list.Machines {
		s := reached[m.Name]
		if s == nil {
			continue
		}
		if addresses[m.Name], heads[m.Name], err = addressesOf(list, m, s); err == nil {
			at[m.Name], names = gaugesAt(s), append(names, m.Name)
		}
	}
	var pairs []pair
	for i := range names {
		for _, far := range names[i+1:] {
			// Hosts have links only to switches.
			if near := list.Machine(names[i]); near == nil || near.Hosts == 0 || list.Machine(far).Hosts == 0 {
				pairs = append(pairs, pair{names[i], far})
			}
		}
	}
	if len(pairs) > 0 {
		begins(len(pairs), time.Duration(len(pairs))*bandwidthTime)
		address := func(of, from string) netip.Addr {
			if of == topology.Head {
				return heads[from]
			}
			return addresses[of]
		}
		out.Carriers, err = measureCarriers(ctx, ways{at, carriage{list, address}, numbersFor(list, pairs)}, pairs,
			bandwidthTime)
	}
	return out, err
}

// numbersFor chooses the numbers with which doctor measures, if labs share them: for links from
// this machine the other machine's own, for others the last ones, which labs use last.
func numbersFor(list *site.List, pairs []pair) func(pair) uint32 {
	of, by := map[pair]uint32{}, list.By()
	if by.Numbers == nil {
		return nil
	}
	next := by.Numbers(list).Last
	for _, p := range pairs {
		if p[0] == topology.Head && by.Own != nil {
			of[p] = by.Own(list.Machine(p[1]))
		}
		if of[p] == 0 {
			of[p] = next
			next--
		}
	}
	return func(p pair) uint32 { return of[p] }
}

// addressesOf returns the address by which the other sites reach a machine, and that by which it
// reaches this one.
func addressesOf(list *site.List, m *site.Machine, s *site.Site) (its, own netip.Addr, err error) {
	if its = m.Address; !its.IsValid() {
		its = s.Remote
	}
	if own = list.Head.Address; !own.IsValid() {
		own = s.Local
	}
	switch name := m.Name; {
	case !its.IsValid():
		err = fmt.Errorf("site %s is reached through a jump host: say where the others reach it:  %s: {ssh: %s, address: …}", name, name, m)
	case !own.IsValid():
		err = fmt.Errorf("site %s is reached through a jump host: say where it reaches this machine:  head: {address: …}", name)
	}
	return its, own, err
}

// examine examines a machine.
func examine(ctx context.Context, s *site.Site) (x Examined, err error) {
	if x, err = timed(ctx, s); err == nil {
		x.Findings, err = site.Call[[]local.Finding](ctx, s, "GET", "/v1/examine", nil)
	}
	return x, err
}

// timed asks a machine several times for the time: with the fastest answer, the clock there was
// read within half a round trip of the middle (RFC 5905, section 8, with equal delays).
func timed(ctx context.Context, s *site.Site) (x Examined, err error) {
	for range 8 {
		begin := time.Now()
		f, err := site.Call[site.Facts](ctx, s, "GET", "/v1/facts", nil)
		if err != nil {
			return x, err
		}
		if rtt := time.Since(begin); x.RTT == 0 || rtt < x.RTT {
			x.RTT, x.Within, x.Facts = rtt, rtt/2, f
			x.Offset = time.Duration(f.Clock - begin.Add(rtt/2).UnixNano())
		}
	}
	return x, nil
}
