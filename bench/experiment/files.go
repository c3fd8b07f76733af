package experiment

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"unicode/utf8"

	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// topologyFiles are the files of topologies that an experiment names. Each is read only once: all
// runs use the topology that the file contained then, whatever happens to it meanwhile, and a
// script is run only once.
type topologyFiles struct {
	mu   sync.Mutex
	read map[topologyFile]*readTopology
}

// topologyFile names a topology: the file and, if that has several, which of them.
type topologyFile struct{ path, topo string }

type readTopology struct {
	topology *topology.Topology
	problems topology.Problems
	text     string
}

// get returns a topology as first read from its file. The caller may change it.
func (f *topologyFiles) get(path, topo string) (*topology.Topology, topology.Problems) {
	r := f.of(path, topo)
	if r.topology == nil {
		return nil, r.problems
	}
	return r.topology.Clone(), r.problems
}

func (f *topologyFiles) of(path, topo string) *readTopology {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := topologyFile{path, topo}
	r := f.read[key]
	if r == nil {
		r = &readTopology{}
		r.topology, r.problems = formats.ReadFile(path, formats.Options{Topo: topo})
		if b, err := os.ReadFile(path); err == nil && len(b) <= maxFile && utf8.Valid(b) {
			r.text = string(b)
		}
		f.read[key] = r
	}
	return r
}

// file returns the path of the lab's topology.
func (l *Lab) file(dir string) string {
	if filepath.IsAbs(l.File) {
		return l.File
	}
	return filepath.Join(dir, l.File)
}

// Machines reads the list of a lab's other machines, which may have to be made first; dir is the
// experiment's directory.
func (l *Lab) Machines(dir string) (*site.List, error) {
	if l.Options["on"] == "" {
		return nil, errors.New("target: sites: say which machines; write  on: machines.yaml")
	}
	return site.Read(l.Listed(dir))
}

// Listed identifies the list of a lab's other machines: labs with the same list share the machines.
func (l *Lab) Listed(dir string) string {
	on := l.Options["on"]
	if beside := filepath.Join(dir, on); on != "" && !filepath.IsAbs(on) {
		if _, err := os.Stat(beside); err == nil {
			return beside
		}
	}
	return on
}

// onMachines says whether hosts may be machines of a rack.
func (l *Lab) onMachines(dir string) bool {
	if l.Options["target"] != Sites {
		return false
	}
	list, err := l.Machines(dir)
	return err != nil || list.TakesHosts() // whoever brings the lab up reports a list that cannot be read
}

// Asking returns the errands in topologies of formats other than Trivet's for which the experiment
// does not say whether root does them.
func (p *Plan) Asking() (out []topology.Errand) {
	seen := map[topologyFile]bool{}
	for i := range p.Cells {
		l := &p.Cells[i].Lab
		key := topologyFile{l.File, l.Topo}
		if l.File == "" || l.Commands != "" || seen[key] {
			continue
		}
		seen[key] = true
		if t, _ := l.source(p.Experiment.Dir()); t != nil && t.Format != formats.Own {
			if l.onMachines(p.Experiment.Dir()) {
				defer t.HostsAsMachines()()
			}
			out = append(out, t.Errands(nil)...)
		}
	}
	return out
}

// topologies returns the files of a plan's topologies, in order, each with a hash of its meaning,
// which does not change with comments.
func (p *Plan) topologies() (out []result.TopologyFile) {
	seen := map[topologyFile]bool{}
	for i := range p.Cells {
		l := &p.Cells[i].Lab
		if key := (topologyFile{l.File, l.Topo}); l.File == "" || seen[key] {
			continue
		} else {
			seen[key] = true
		}
		r := p.Experiment.files.of(l.file(p.Experiment.Dir()), l.Topo)
		b, _ := json.Marshal(r.topology) // Check reports files that cannot be read
		sum := sha256.Sum256(b)
		out = append(out,
			result.TopologyFile{File: l.File, Topo: l.Topo, Hash: hex.EncodeToString(sum[:16]), Text: r.text})
	}
	return out
}
