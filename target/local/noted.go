package local

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/netfacts"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/plan"
)

// When a lab is up, the contents of its namespaces are recorded, so that later changes made by
// others can be reported (Changed). Changes that Trivet itself makes, or that commands in the lab's
// file make, are added to the record (Renew): the difference between just before and just after, so
// that earlier changes by others are still reported.
//
// The record is kept in two files, not in memory: one with all namespaces, and one with what has
// been added since. Both survive the process.

func (l *Lab) notedFile() string   { return filepath.Join(l.Dir, "noted.gz") }
func (l *Lab) renewedFile() string { return filepath.Join(l.Dir, "renewed") }

// mostRenewed is the size in bytes at which the second file is merged into the first.
const mostRenewed = 1 << 20

// inFabric stands for the switches' namespace where others are named by their nodes.
const inFabric = ""

// noted is a line: the contents of a namespace or, in the second file, what has changed there.
type noted struct {
	Node  string          `json:"node"`
	Facts netfacts.Facts  `json:"facts,omitempty"`
	Delta *netfacts.Delta `json:"delta,omitempty"`
}

// notes is the state of these files.
type notes struct {
	mu      sync.Mutex    // of the files, and of what follows
	written chan struct{} // closed when the first file is written, or cannot be; nil: not yet asked for
	late    []string      // nodes whose namespaces changed while it was being written
	err     error         // why it could not be written
}

// manyNoted is from how many nodes on a lab does not wait until all of it is recorded.
const manyNoted = 100

// Note records the contents of the lab's namespaces; in a large lab it continues in the background.
// After Resume they are recorded already. It may be called at any time.
func (l *Lab) Note(resumed bool) {
	l.notes.mu.Lock()
	if l.notes.written != nil {
		l.notes.mu.Unlock()
		return
	}
	written := make(chan struct{})
	l.notes.written = written
	l.notes.mu.Unlock()
	if _, err := os.Stat(l.notedFile()); resumed && err == nil {
		close(written)
		return
	}
	go l.noteAll(written)
	if len(l.Topology().Nodes) < manyNoted {
		<-written
	}
}

// places returns the namespaces that are recorded, by their nodes.
func (l *Lab) places() (out []string) {
	out = append(out, inFabric)
	for _, n := range l.Topology().Nodes {
		if n.Made().Open() {
			out = append(out, n.Name)
		}
	}
	return out
}

// factsOf reads namespaces. One that is gone yields no facts.
func (l *Lab) factsOf(places []string, each func(node string, f netfacts.Facts) error) error {
	return parallel.Each(slices.Collect(slices.Chunk(places, perProcfs)), func(some []string) error {
		return inside.Namespace("", func() error {
			proc := newProcfs()
			if proc > 0 {
				defer unix.Close(proc)
			}
			for _, node := range some {
				facts, err := l.factsIn(node, proc)
				if err == nil {
					err = each(node, facts)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// factsIn moves the calling thread into a namespace and reads it.
func (l *Lab) factsIn(node string, proc int) (netfacts.Facts, error) {
	ns, err := os.Open(l.netPath(node))
	if errors.Is(err, os.ErrNotExist) || node != inFabric && l.node(node) == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	// It is just being made, or gone.
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); errors.Is(err, unix.EINVAL) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("enter the namespace of %s: %w", node, err)
	}
	facts, err := netfacts.Read(proc, node == inFabric)
	if err != nil {
		return nil, fmt.Errorf("what there is in %s: %w", whereIs(node), err)
	}
	return facts, nil
}

func whereIs(node string) string {
	if node == inFabric {
		return "the switches' namespace"
	}
	return node
}

// noteAll writes the first file, and adds to the second what was changed meanwhile.
func (l *Lab) noteAll(written chan struct{}) {
	_ = os.Remove(l.renewedFile())
	err := l.writeNoted(func(put func(noted) error) error {
		var mu sync.Mutex
		return l.factsOf(l.places(), func(node string, f netfacts.Facts) error {
			mu.Lock()
			defer mu.Unlock()
			return put(noted{Node: node, Facts: f})
		})
	})
	for {
		l.notes.mu.Lock()
		late := slices.Compact(slices.Sorted(slices.Values(l.notes.late)))
		if l.notes.late = nil; err != nil || len(late) == 0 {
			l.notes.err = err
			close(written)
			l.notes.mu.Unlock()
			return
		}
		l.notes.mu.Unlock()
		err = l.noteAnew(late)
	}
}

// writeNoted replaces the first file.
func (l *Lab) writeNoted(write func(put func(noted) error) error) error {
	file, err := os.OpenFile(l.notedFile()+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	z, _ := gzip.NewWriterLevel(file, gzip.BestSpeed)
	lines := json.NewEncoder(z)
	err = write(func(n noted) error { return lines.Encode(n) })
	if err = errors.Join(err, z.Close(), file.Close()); err != nil {
		_ = os.Remove(file.Name())
		return err
	}
	return os.Rename(file.Name(), l.notedFile())
}

// Renew runs f, and adds to the record what f changes in the nodes' namespaces: f is Trivet's own
// doing, or something that the lab's file asks for. It may be called at any time.
func (l *Lab) Renew(nodes []string, f func() error) error {
	l.notes.mu.Lock()
	written := l.notes.written
	l.notes.mu.Unlock()
	if written == nil || len(nodes) == 0 {
		return f()
	}
	over := func() bool {
		select {
		case <-written:
			return true
		default:
			return false
		}
	}
	var before map[string]netfacts.Facts
	var unread error
	known := over()
	if known {
		before, unread = l.allFacts(nodes)
	}
	err := f()
	l.notes.mu.Lock()
	late := !over()
	if late {
		l.notes.late = append(l.notes.late, nodes...)
	}
	l.notes.mu.Unlock()
	switch {
	case late:
	case !known:
		unread = l.noteAnew(nodes)
	case unread == nil:
		var after map[string]netfacts.Facts
		if after, unread = l.allFacts(nodes); unread == nil {
			unread = l.noteChange(before, after)
		}
	}
	if unread != nil {
		l.notes.mu.Lock()
		l.notes.err = fmt.Errorf("after a change: %w", unread)
		l.notes.mu.Unlock()
	}
	return err
}

// noteAnew adds the whole contents of namespaces to the second file.
func (l *Lab) noteAnew(nodes []string) error {
	all, err := l.allFacts(nodes)
	if err != nil {
		return err
	}
	var lines []noted
	for node, facts := range all {
		lines = append(lines, noted{Node: node, Facts: facts})
	}
	return l.add(lines)
}

func (l *Lab) allFacts(nodes []string) (map[string]netfacts.Facts, error) {
	out := map[string]netfacts.Facts{}
	var mu sync.Mutex
	return out, l.factsOf(nodes, func(node string, f netfacts.Facts) error {
		mu.Lock()
		defer mu.Unlock()
		out[node] = f
		return nil
	})
}

// noteChange adds the differences to the second file.
func (l *Lab) noteChange(before, after map[string]netfacts.Facts) error {
	var lines []noted
	for node, facts := range after {
		if d := facts.Since(before[node]); !d.Empty() {
			lines = append(lines, noted{Node: node, Delta: &d})
		}
	}
	return l.add(lines)
}

// add adds lines to the second file.
func (l *Lab) add(lines []noted) error {
	if len(lines) == 0 {
		return nil
	}
	var text strings.Builder
	encode := json.NewEncoder(&text)
	for _, line := range lines {
		if err := encode.Encode(line); err != nil {
			return err
		}
	}
	l.notes.mu.Lock()
	defer l.notes.mu.Unlock()
	file, err := os.OpenFile(l.renewedFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text.String())
	info, unknown := file.Stat()
	if err = errors.Join(err, unknown, file.Close()); err != nil || info.Size() < mostRenewed {
		return err
	}
	err = l.writeNoted(func(put func(noted) error) error {
		return l.eachNoted(func(some []noted) error {
			for _, n := range some {
				if err := put(n); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	return os.Remove(l.renewedFile())
}

// eachNoted calls f with the recorded lines, some namespaces at a time. The caller has locked
// notes.mu.
func (l *Lab) eachNoted(f func([]noted) error) error {
	added, err := l.added()
	if err != nil {
		return err
	}
	file, err := os.Open(l.notedFile())
	if err != nil {
		return err
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	lines := json.NewDecoder(bufio.NewReader(z))
	var some []noted
	take := func(n noted) error {
		if n.Facts == nil {
			n.Facts = netfacts.Facts{}
		}
		for _, line := range added[n.Node] {
			if line.Delta == nil {
				n.Facts, line.Delta = netfacts.Facts{}, &netfacts.Delta{Now: line.Facts}
			}
			n.Facts.Take(*line.Delta)
		}
		delete(added, n.Node)
		if some = append(some, n); len(some) < 4*perProcfs {
			return nil
		}
		err := f(some)
		some = nil
		return err
	}
	for {
		var n noted
		err := lines.Decode(&n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = take(n)
		}
		if err != nil {
			return err
		}
	}
	for node := range maps.Clone(added) { // nodes added since
		if err := take(noted{Node: node}); err != nil {
			return err
		}
	}
	return f(some)
}

// added returns the lines of the second file by namespace. An incomplete last line is ignored.
func (l *Lab) added() (map[string][]noted, error) {
	out := map[string][]noted{}
	file, err := os.Open(l.renewedFile())
	if errors.Is(err, os.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := json.NewDecoder(bufio.NewReader(file))
	for {
		var n noted
		if lines.Decode(&n) != nil {
			return out, nil
		}
		out[n.Node] = append(out[n.Node], n)
	}
}

// neverUp says whether a link is down and has not been up since it was made.
func (l *Lab) neverUp(k plan.Link) bool {
	_, kept := l.Record.Pulled[pulledKey(l.cableEnd(k.Link))]
	wire := l.WireOf(k.Link)
	return !kept && (wire == datapath.Veth || wire == datapath.External)
}

// concerned returns the nodes whose namespaces steps change. Pulling or plugging a link keeps the
// contents or restores them, except that a link which has never been up brings what the topology
// has there.
func (l *Lab) concerned(s plan.Steps) []string {
	all := map[string]bool{}
	node := func(name string) {
		n := s.New.Node(name)
		if n == nil {
			n = l.node(name)
		}
		switch {
		case n == nil || n.Made().Open():
			all[name] = true
		case n.IsDatapath():
			all[inFabric] = true
		}
	}
	for _, n := range slices.Concat(s.DropNodes, s.AddNodes) {
		node(n.Name)
	}
	for _, c := range s.SetNodes {
		node(c.New.Name)
	}
	for _, k := range slices.Concat(s.DropLinks, s.AddLinks, s.SetLinks) {
		onlyPlugged := s.Plugged[k.Key] && !s.Resized[k.Key] && !s.Impaired[k.Key] && (k.Down || !l.neverUp(k))
		for _, e := range k.Ends {
			if !onlyPlugged && !e.External() {
				node(e.Node)
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}
