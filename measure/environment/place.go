package environment

import (
	"cmp"
	"path/filepath"
	"strings"
)

// Place is where a result's labs ran. It is a factor of its own in comparisons, even if nothing
// else of the experiment differs.
type Place struct {
	Target string `json:"target"` // local, sites
	// List of other machines: a file's base name, or names for ssh.
	On       string            `json:"on,omitempty"`
	Carrier  string            `json:"carrier,omitempty"`  // of links between machines
	Machines map[string]Record `json:"machines,omitempty"` // other machines used, by name

	// Of machines made for a result: the provider, and what each was made of. A result stores this,
	// and the machines' own records, in separate lines.
	By   string                       `json:"by,omitempty"`
	Made map[string]map[string]string `json:"made,omitempty"`
}

// Name returns the place in one word: local, or the list's name without its extension.
func (p *Place) Name() string {
	return cmp.Or(strings.TrimSuffix(p.On, filepath.Ext(p.On)), p.Target)
}

// Same reports whether two places are the same, whatever the state of their machines.
func (p *Place) Same(o *Place) bool {
	return p == nil && o == nil || p != nil && o != nil && p.Target == o.Target && p.On == o.On
}
