package topology

import (
	"path/filepath"
	"slices"
)

// Clone returns a deep copy; the values in Foreign are shared, as they are never modified.
func (t *Topology) Clone() *Topology {
	c := *t
	c.Controllers = slices.Clone(t.Controllers)
	c.Schedule, c.Models = slices.Clone(t.Schedule), slices.Clone(t.Models)
	c.Balance = clonePointer(t.Balance)
	c.Cluster = t.Cluster.Clone()
	c.Nodes = make([]*Node, len(t.Nodes))
	for i, n := range t.Nodes {
		c.Nodes[i] = n.clone()
	}
	c.Links = make([]*Link, len(t.Links))
	for i, l := range t.Links {
		c.Links[i] = l.Clone()
	}
	return &c
}

// DirsFrom resolves relative sources of private directories, directories to build images from,
// files of virtual machines, and files with keys, against dir: the directory of the file.
func (t *Topology) DirsFrom(dir string) {
	if t.Cluster != nil {
		t.Cluster.filesFrom(dir)
	}
	for _, n := range t.Nodes {
		if n.Build != "" && !filepath.IsAbs(n.Build) {
			n.Build = filepath.Join(dir, n.Build)
		}
		if n.Guest != nil {
			n.Guest.filesFrom(dir)
		}
		for i, d := range n.Dirs {
			if d.Source != "" && !filepath.IsAbs(d.Source) {
				n.Dirs[i].Source = filepath.Join(dir, d.Source)
			}
		}
	}
	for _, l := range t.Links {
		if w := l.Wifi; w != nil && w.KeyFile != "" && !filepath.IsAbs(w.KeyFile) {
			l.Wifi = clonePointer(w) // links of a range share it
			l.Wifi.KeyFile = filepath.Join(dir, w.KeyFile)
		}
	}
}

func (n *Node) clone() *Node {
	c := *n
	c.Addresses = slices.Clone(n.Addresses)
	c.Loopback = slices.Clone(n.Loopback)
	c.Interfaces = CloneInterfaces(n.Interfaces)
	c.Gateways = slices.Clone(n.Gateways)
	c.Routes = slices.Clone(n.Routes)
	c.RA = n.RA.clone()
	c.Rules, c.Neighbors = slices.Clone(n.Rules), slices.Clone(n.Neighbors)
	c.Labels = slices.Clone(n.Labels)
	c.Distances = slices.Clone(n.Distances)
	c.Redistribute = slices.Clone(n.Redistribute)
	c.Masquerade = slices.Clone(n.Masquerade)
	c.Cores = slices.Clone(n.Cores)
	c.Isolate = slices.Clone(n.Isolate)
	c.Dirs = slices.Clone(n.Dirs)
	c.Config, c.Files = slices.Clone(n.Config), slices.Clone(n.Files)
	c.Controllers = slices.Clone(n.Controllers)
	c.OpenFlow = slices.Clone(n.OpenFlow)
	c.Protocols = n.Protocols.Clone()
	c.Container = n.Container.clone()
	c.Guest, c.Model = n.Guest.clone(), clonePointer(n.Model)
	c.Sysctls, c.Ports = slices.Clone(n.Sysctls), slices.Clone(n.Ports)
	return &c
}

// Clone returns a deep copy.
func (l *Link) Clone() *Link {
	c := *l
	c.Protocols = l.Protocols.Clone()
	c.Wifi = clonePointer(l.Wifi)
	for i := range c.Ends {
		e := &c.Ends[i]
		e.Addresses = slices.Clone(e.Addresses)
		if e.Port != nil {
			port := *e.Port
			e.Port = &port
		}
		if e.Egress != nil {
			egress := *e.Egress
			e.Egress = &egress
		}
		e.Protocols = e.Protocols.Clone()
		e.RA, e.AcceptRA = e.RA.clone(), clonePointer(e.AcceptRA)
		if e.Carrier != nil {
			carrier := *e.Carrier
			carrier.Port = clonePointer(carrier.Port)
			e.Carrier = &carrier
		}
	}
	return &c
}
