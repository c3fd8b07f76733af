package environment

import (
	"cmp"
	"path/filepath"
	"strings"
)

// Place is where the labs of a result were. It is a factor of its own where results are compared:
// nothing else of the experiment needs to differ.
type Place struct {
	Target string `json:"target"` // local, sites
	// The list of other machines: a file's name without its directory, or names for ssh.
	On       string            `json:"on,omitempty"`
	Carrier  string            `json:"carrier,omitempty"`  // of links between machines
	Machines map[string]Record `json:"machines,omitempty"` // the other ones that were used, by name

	// Of machines that are made for a result: who makes them, and what each was made of. A result
	// has that and what they say of themselves in lines of its own, from which it is read.
	By   string                       `json:"by,omitempty"`
	Made map[string]map[string]string `json:"made,omitempty"`
}

// Name is the place in a word: local, or that of the list without its ending.
func (p *Place) Name() string {
	return cmp.Or(strings.TrimSuffix(p.On, filepath.Ext(p.On)), p.Target)
}

// Same says whether two places are one, whatever state their machines were in.
func (p *Place) Same(o *Place) bool {
	return p == nil && o == nil || p != nil && o != nil && p.Target == o.Target && p.On == o.On
}
