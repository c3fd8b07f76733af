package clab

import (
	"maps"
	"slices"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// definition is what a file sets for a node, a kind, a group, or for all nodes, by key.
type definition map[string]yamlfile.Pair

// honoured are the keys of definitions that have an effect.
var honoured = []string{"kind", "group", "image", "cmd", "entrypoint", "env", "user", "exec", "binds", "tmpfs",
	"ports", "devices", "cap-add", "privileged",
	"mgmt-ipv4", "network-mode", "cpu", "cpu-set", "memory", "sysctls", "stages", "healthcheck", "restart-policy"}

// unheld are the keys of definitions that Trivet does not support, with a hint on what to do
// instead.
var unheld = map[string]string{
	"startup-config": "bind the file to where the image looks for it: binds",
	"license":        "bind the file to where the image looks for it: binds",
	"type":           "", "enforce-startup-config": "", "suppress-startup-config": "", "config": "", "extras": "",
	"components": "", "credentials": "", "username": "", "password": "", "certificate": "",
	"startup-delay": "name the nodes to wait for: stages", "auto-remove": "",
	"image-pull-policy": "", "runtime": "", "link-apply-mode": "",
	"env-files": "write the variables under env", "labels": "", "hostname": "the name of a node is its host name",
	"aliases": "", "dns": "bind a file to /etc/resolv.conf: binds",
	"volumes": "name a directory of the machine: binds", "cgroupns-mode": "", "cgroup-parent": "", "pid-mode": "",
	"security-opts": "", "shm-size": "",
	"mgmt-ipv6": "the management network has IPv4 alone", "publish": "", "position": "",
}

// renamed maps keys of earlier versions of containerlab to their present names.
var renamed = map[string]string{"mgmt_ipv4": "mgmt-ipv4", "mgmt_ipv6": "mgmt-ipv6", "startup_config": "startup-config"}

func (r *reader) definition(v *yamlfile.Value, subject string) definition {
	d := definition{}
	for _, p := range r.Mapping(v, subject) {
		key := p.Key.Text
		if now, ok := renamed[key]; ok {
			r.Warn(p.Key, "write "+now, "%s: containerlab no longer knows %q", subject, key)
			key = now
		}
		hint, without := unheld[key]
		switch {
		case without:
			r.lose(p.Key, key, hint)
		case !slices.Contains(honoured, key):
			r.warnUnknown(p.Key, subject, append(slices.Sorted(maps.Keys(unheld)), honoured...)...)
		}
		p.Key = &yamlfile.Value{Shape: yamlfile.Scalar, Pos: p.Key.Pos, Text: key}
		d[key] = p
	}
	return d
}

// levels are the definitions that apply to a node, from the most general (the defaults) to its own.
type levels [4]definition

// inherited returns the levels of a node whose own definition is own, and the names of its kind and
// its group.
func (r *reader) inherited(own definition) (l levels, kind, group string) {
	ofGroup := func(d definition, key string) string { return r.plain(r.groups[r.plain(d, "group")], key) }
	kind = firstOf(r.plain(own, "kind"), ofGroup(own, "kind"), ofGroup(r.defaults, "kind"), r.plain(r.defaults, "kind"))
	group = firstOf(r.plain(own, "group"), r.plain(r.kinds[kind], "group"), r.plain(r.defaults, "group"))
	return levels{r.defaults, r.kinds[kind], r.groups[group], own}, kind, group
}

// plain returns the value of a key in one definition, "" if it is not set.
func (r *reader) plain(d definition, key string) string {
	p, ok := d[key]
	if !ok {
		return ""
	}
	return r.text(p.Value, key)
}

func firstOf(words ...string) string {
	return lists.Find(words, func(w string) bool { return w != "" })
}

// get returns the value of a key that overrides others: that of the most specific level that sets
// it, or nil.
func (l levels) get(key string) *yamlfile.Value {
	for _, d := range slices.Backward(l[:]) {
		if p, ok := d[key]; ok && p.Value.Shape != yamlfile.Nothing &&
			(p.Value.Shape != yamlfile.Scalar || p.Value.Text != "") {
			return p.Value
		}
	}
	return nil
}

// all returns the values of a key at all levels, the most general first.
func (l levels) all(key string) (values []*yamlfile.Value) {
	for _, d := range l {
		if p, ok := d[key]; ok {
			values = append(values, p.Value)
		}
	}
	return values
}

// word returns the text and the value of a key that overrides others.
func (r *reader) word(l levels, key, subject string) (string, *yamlfile.Value) {
	v := l.get(key)
	if v == nil {
		return "", nil
	}
	return r.text(v, subject+": "+key), v
}

// item is an element of a list, with its text.
type item struct {
	*yamlfile.Value
	text string
}

// listOf returns the elements of a list that are not empty.
func (r *reader) listOf(v *yamlfile.Value, what string) (items []item) {
	if v == nil {
		return nil
	}
	for _, e := range r.List(v, what) {
		if s := r.text(e, what); s != "" {
			items = append(items, item{e, s})
		}
	}
	return items
}

// joined returns the elements of the lists of all levels, in order and without duplicates.
func (r *reader) joined(l levels, key, subject string) (items []item) {
	seen := map[string]bool{}
	for _, v := range l.all(key) {
		for _, e := range r.listOf(v, subject+": "+key) {
			if !seen[e.text] {
				seen[e.text] = true
				items = append(items, e)
			}
		}
	}
	return items
}

// assignment is a pair of a mapping, and where it is written.
type assignment struct {
	topology.Assignment
	at *yamlfile.Value
}

// merged returns the pairs of the mappings of all levels. Where several have the same key, the
// value of the most specific level counts.
func (r *reader) merged(l levels, key, subject string) (list []assignment) {
	index := map[string]int{}
	for _, v := range l.all(key) {
		for _, p := range r.Mapping(v, subject+": "+key) {
			value := r.text(p.Value, subject+": "+key+": "+formats.Clip(p.Key.Text))
			a := assignment{topology.Assignment{Name: p.Key.Text, Value: value}, p.Key}
			if i, ok := index[a.Name]; ok {
				list[i] = a
				continue
			}
			index[a.Name] = len(list)
			list = append(list, a)
		}
	}
	return list
}

// keep stores those keys of a node's levels that mean nothing to Trivet. Mappings are merged.
func (r *reader) keep(n *topology.Node, l levels) {
	for _, d := range l {
		for _, key := range slices.Sorted(maps.Keys(d)) {
			if slices.Contains(honoured, key) || !r.Spend(d[key].Key, 1) {
				continue
			}
			kept := foreign(&n.Foreign)
			before, both := kept[key].(map[string]any)
			r.Keep(kept, d[key])
			if now, ok := kept[key].(map[string]any); ok && both {
				merged := maps.Clone(before)
				maps.Copy(merged, now)
				kept[key] = merged
			}
		}
	}
}
