// Package openstack provides instances of an OpenStack cloud as a lab's machines: in a network of
// their own behind a router, or in an existing network, with addresses for SSH. It needs only the
// rights of a project's members.
package openstack

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// Word is the provider's name in files and on the command line.
const Word = "openstack"

func init() {
	site.RegisterProvider(&site.Provider{Word: Word, Open: open, Schema: schema()})
	site.RegisterSource(&site.Source{Knows: knows, Read: read})
}

// Options are what a file says about a lab's instances. Unset options are chosen if there is only
// one possibility.
type Options struct {
	Cloud   string `json:"cloud,omitempty"`    // a name in clouds.yaml; unset: OS_CLOUD, or OS_AUTH_URL and so on
	Image   string `json:"image,omitempty"`    // a name or an ID
	Flavor  string `json:"flavor,omitempty"`   // the same
	User    string `json:"user,omitempty"`     // to log in as; unset: the image's default user
	Zone    string `json:"zone,omitempty"`     // an availability zone of Nova
	KeyPair string `json:"key_pair,omitempty"` // of Nova, whose owner may log in, too
	// File with more for cloud-init; see mergeUserData.
	UserData string `json:"user_data,omitempty"`
	Network  string `json:"network,omitempty"` // of the instances' first ports; unset: one is made
	// Network of floating IPs; none: this machine reaches the instances' network directly.
	External string `json:"external,omitempty"`
	Links    string `json:"links,omitempty"` // links between instances: tunnels, or networks
	// Neutron's name for this machine, if the lab is here; unset: its hostname.
	Host string `json:"host,omitempty"`

	Instances map[string]Instance `json:"instances"`
}

// Instance is what a file says about one instance. Unset fields are as for all.
type Instance struct {
	Image    string `json:"image,omitempty"`
	Flavor   string `json:"flavor,omitempty"`
	Zone     string `json:"zone,omitempty"`
	KeyPair  string `json:"key_pair,omitempty"`
	UserData string `json:"user_data,omitempty"`

	// Server names an existing server, which is the user's and stays; nothing else is set then.
	Server string `json:"server,omitempty"`
}

// none, in place of an external network, means that there are no floating IPs.
const none = "none"

// Values of Options.Links.
const (
	linkTunnels  = "tunnels"
	linkNetworks = "networks"
)

// maxInstances limits the instances of a list.
const maxInstances = site.MaxMachines

// knows reports whether what is given requests instances: it is the word alone, or a file with this
// key.
func knows(g *site.Given) bool {
	if len(g.Files) == 0 {
		return g.Argument == Word
	}
	if len(g.Files) > 1 {
		return false
	}
	root, _ := yamlfile.Dialect{}.Parse(g.Files[0].Name, g.Files[0].Data)
	return root != nil && root.Get(Word) != nil
}

// read reads the file; the word alone requests one instance.
func read(g *site.Given, l *site.List, p *topology.Problems) {
	o := Options{Instances: map[string]Instance{}}
	// Instances cannot reach this machine except over its SSH connections.
	defer func() { l.Head.Only = len(l.Machines) > 0 }()
	if len(g.Files) > 0 {
		root, problems := yamlfile.Dialect{}.Parse(g.Files[0].Name, g.Files[0].Data)
		if *p = append(*p, problems...); root == nil {
			return
		}
		for _, q := range root.Pairs {
			switch {
			case q.Key.Text == Word:
				o.read(q.Value, l, p)
			case !l.Option(q, p):
				p.Add(q.Key.Pos, "known are openstack, carrier, keep", "there is no key %q", q.Key.Text)
			}
		}
	} else {
		o.add(l, "i1", Instance{}, topology.Position{})
	}
	b, err := json.Marshal(o)
	if err != nil {
		p.Add(topology.Position{}, "", "%v", err)
	}
	l.Provided = &site.Provided{By: Word, Options: b, Joins: o.Links == linkNetworks}
}

func (o *Options) read(v *yamlfile.Value, l *site.List, p *topology.Problems) {
	if v.Shape != yamlfile.Mapping {
		p.Add(v.Pos, "write  openstack: {image: debian-12, flavor: small, instances: 2}",
			"openstack is a mapping, not %s", v)
		return
	}
	words := map[string]*string{"cloud": &o.Cloud, "image": &o.Image, "flavor": &o.Flavor, "user": &o.User,
		"zone": &o.Zone, "key_pair": &o.KeyPair,
		"network": &o.Network, "external": &o.External, "host": &o.Host, "links": &o.Links}
	for _, q := range v.Pairs {
		switch to := words[q.Key.Text]; {
		case to != nil:
			*to = word(q.Value, p)
		case q.Key.Text == "user_data":
			o.UserData = besides(q.Value, p)
		case q.Key.Text == "instances":
			o.readInstances(q.Value, l, p)
		default:
			p.Add(q.Key.Pos,
				"known are cloud, image, flavor, user, zone, key_pair, user_data, network, external, links, host, instances",
				"openstack: there is no option %q", q.Key.Text)
		}
	}
	if v.Get("instances") == nil {
		o.add(l, "i1", Instance{}, v.Pos)
	}
	if !slices.Contains([]string{"", linkTunnels, linkNetworks}, o.Links) {
		p.Add(v.Get("links").Pos, "write  links: "+linkNetworks+",  or leave it out",
			"links between instances are %s or %s, not %s", linkTunnels, linkNetworks, o.Links)
	}
	if o.External == none && o.Network == "" {
		p.Add(v.Pos, "name the network by which this machine reaches them:  network: NAME",
			"external: none leaves no way to the instances")
	}
}

func (o *Options) readInstances(v *yamlfile.Value, l *site.List, p *topology.Problems) {
	switch v.Shape {
	case yamlfile.Scalar:
		n, err := strconv.Atoi(v.Text)
		if err != nil || n < 0 || n > maxInstances {
			p.Add(v.Pos, "write  instances: 2", "%s is not a number of instances: 0 (the lab is on this machine) to %d",
				v, maxInstances)
			return
		}
		for i := range n {
			o.add(l, fmt.Sprintf("i%d", i+1), Instance{}, v.Pos)
		}
	case yamlfile.Mapping:
		for _, q := range v.Pairs {
			o.readInstance(q, l, p)
		}
	default:
		p.Add(v.Pos, "write  instances: 2", "instances is a number, or a mapping of names, not %s", v)
	}
}

func (o *Options) readInstance(q yamlfile.Pair, l *site.List, p *topology.Problems) {
	name, v := q.Key.Text, q.Value
	if !hostname(name) {
		p.Add(q.Key.Pos, "use letters, digits and dashes, at most 40", "%q cannot be the name of an instance", name)
		return
	}
	var i Instance
	m := o.add(l, name, i, q.Key.Pos)
	if v.Shape == yamlfile.Nothing {
		return
	}
	if v.Shape != yamlfile.Mapping {
		p.Add(v.Pos, "write  "+name+": {flavor: large}", "an instance is a mapping, not %s", v)
		return
	}
	words := map[string]*string{"image": &i.Image, "flavor": &i.Flavor, "zone": &i.Zone, "key_pair": &i.KeyPair,
		"server": &i.Server}
	var ssh *yamlfile.Value
	for _, option := range v.Pairs {
		switch to := words[option.Key.Text]; {
		case to != nil:
			*to = word(option.Value, p)
		case option.Key.Text == "user_data":
			i.UserData = besides(option.Value, p)
		case option.Key.Text == "hosts":
			m.Hosts = site.HostCount(option.Value, p)
		case option.Key.Text == "ssh":
			ssh = option.Value
		case !m.Option(option, p):
			p.Add(option.Key.Pos,
				"known are image, flavor, zone, key_pair, user_data, server, ssh, hosts, labels, cores",
				"instance %s: there is no option %q", name, option.Key.Text)
		}
	}
	o.Instances[name] = i
	switch made := i; {
	case (i.Server == "") != (ssh == nil):
		p.Add(q.Key.Pos, "write  "+name+": {server: NAME, ssh: user@address}",
			"%s: server: names a server that is there, and ssh: how to log in to it; each needs the other", name)
	case i.Server != "":
		if made.Server = ""; made != (Instance{}) {
			p.Add(q.Key.Pos, "leave out image, flavor, zone, key_pair and user_data",
				"%s is a server that is there, and not made of anything", name)
		}
		m.Reach(ssh, p)
	}
}

// add adds a machine to a list. Until it is made, its host is its name.
func (o *Options) add(l *site.List, name string, i Instance, pos topology.Position) *site.Machine {
	m := &site.Machine{Name: name, Host: name, Pos: pos}
	l.Machines, o.Instances[name] = append(l.Machines, m), i
	return m
}

// of returns what an instance is made of, with defaults applied.
func (o *Options) of(name string) Instance {
	i := o.Instances[name]
	if i.Server != "" {
		return i
	}
	return Instance{Image: cmp.Or(i.Image, o.Image), Flavor: cmp.Or(i.Flavor, o.Flavor), Zone: cmp.Or(i.Zone, o.Zone),
		KeyPair: cmp.Or(i.KeyPair, o.KeyPair), UserData: cmp.Or(i.UserData, o.UserData)}
}

// made lists the machines that are made; the others are servers that are there.
func (o *Options) made(l *site.List) []*site.Machine {
	return lists.Filter(l.Machines, func(m *site.Machine) bool { return o.Instances[m.Name].Server == "" })
}

// besides reads the name of a file in the directory of the one that names it, or below.
func besides(v *yamlfile.Value, p *topology.Problems) string {
	name := word(v, p)
	if name == "" {
		return ""
	}
	if !filepath.IsLocal(name) {
		p.Add(v.Pos, "put it there, or below, and write  user_data: vm1.yaml",
			"%s is not in the directory of this file", name)
		return ""
	}
	path, err := filepath.Abs(filepath.Join(filepath.Dir(v.Pos.File), name))
	if err != nil {
		p.Add(v.Pos, "", "%v", err)
	}
	return path
}

// word reads a name or ID of something in the cloud.
func word(v *yamlfile.Value, p *topology.Problems) string {
	if v.Shape != yamlfile.Scalar || v.Text == "" || len(v.Text) > 255 ||
		strings.ContainsFunc(v.Text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		p.Add(v.Pos, "write a name, or an ID", "a name of the cloud's is needed here, not %s", v)
		return ""
	}
	return v.Text
}

// hostname reports whether a machine can have this name as its hostname, too (RFC 1123, section
// 2.1).
func hostname(s string) bool {
	alnum := func(r byte) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' }
	return site.CanName(s) && alnum(s[0]) && alnum(s[len(s)-1]) &&
		!slices.ContainsFunc([]byte(s), func(b byte) bool { return !alnum(b) && b != '-' })
}

// schema returns the JSON Schema of Options.
func schema() map[string]any {
	type object = map[string]any
	name := func(what string) object {
		return object{"type": "string", "minLength": 1, "maxLength": 255, "description": what}
	}
	image, flavor, zone := name("Its image: a name or an ID."), name("Its flavor: a name or an ID."),
		name("An availability zone of Nova.")
	keyPair := name("A key pair of Nova, whose owner may log in, too.")
	userData := name("A file beside this one with more for cloud-init: a #cloud-config, or a script.")
	instance := object{"anyOf": []object{{"type": "null"},
		{"type": "object", "additionalProperties": false, "properties": object{
			"image": image, "flavor": flavor, "zone": zone, "key_pair": keyPair, "user_data": userData,
			"server": name("A server that is there in its place: a name or an ID."),
			"ssh":    name("How to log in to that server: user@address."),
			"hosts": object{"description": "It takes hosts only, so many at most; 1: the host is the instance itself.",
				"type": "integer", "minimum": 1, "maximum": site.MaxHosts},
			"labels": object{"description": "A node that asks for one of them (on: gpu) runs here.",
				"anyOf": []object{{"type": "string"}, {"type": "array", "items": object{"type": "string"}}}},
			"cores": object{"description": "How many processors the lab may use; else the flavor's.", "type": "number",
				"exclusiveMinimum": 0, "maximum": 4096},
		}}}}
	return object{"type": "object", "additionalProperties": false, "properties": object{
		"cloud": name("A name in clouds.yaml; else OS_CLOUD, or the variables of an openrc file."),
		"image": image, "flavor": flavor, "zone": zone, "key_pair": keyPair, "user_data": userData,
		"user":     name("Whom the image lets in over SSH; else its default user."),
		"network":  name("Where the instances have their first port; else a network, with a router, is made."),
		"external": name("The network that floating IPs are of. none: this machine reaches the instances without."),
		"links":    object{"description": "What links between instances are: tunnels of VXLAN, or networks of the cloud, one for each.", "enum": []string{linkTunnels, linkNetworks}},
		"host":     name("What Neutron calls this machine, if the lab is here (instances: 0); else as it calls itself."),
		"instances": object{"description": "How many, or their names. 0: the lab is on this machine, whose Open vSwitch is Neutron's.", "anyOf": []object{
			{"type": "integer", "minimum": 0, "maximum": maxInstances},
			{"type": "object", "minProperties": 1, "maxProperties": maxInstances, "additionalProperties": instance},
		}},
	}}
}
