package miniedit

import (
	"bytes"
	"encoding/json"
	"maps"

	"trivet.dev/trivet/topology"
)

// What is kept in Foreign["miniedit"] of a topology, node or link:
//
//	number   nodeNum, if it is not the number in the name
//	ip       true if ip is written although it is the address that follows from the number
//	version  of the file, if it is not 2
//	raw      settings as in the file, if Write would write them differently or not at all
//	for      what Write would write instead of raw
//
// Write replaces what equals for by raw, and adds what is in raw but not in for. So a number that
// was saved as a string stays a string until it is changed, and an unknown key is never lost.

// foreign returns what is kept for this format, never nil.
func foreign(all map[string]any) map[string]any {
	m, _ := all[name].(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	return m
}

// store keeps a value.
func store(all *map[string]any, key string, v any) {
	m := maps.Clone(foreign(*all))
	m[key] = v
	c := maps.Clone(*all)
	if c == nil {
		c = map[string]any{}
	}
	c[name] = m
	*all = c
}

// hint keeps a value of a node if it says something that the topology does not.
func hint(n *topology.Node, key string, v any, says bool) {
	if says {
		store(&n.Foreign, key, v)
	}
}

// keep stores, throughout a topology just read from file, what Write would write differently.
func keep(t *topology.Topology, file map[string]any) {
	if v, ok := file["version"]; ok && same(v, "1") {
		store(&t.Foreign, "version", "1")
	}
	d := compose(t)
	top := maps.Clone(file)
	for _, key := range []string{"hosts", "switches", "links"} {
		delete(top, key)
	}
	if d.version == "2" {
		delete(top, "controllers")
	}
	keepRecord(&t.Foreign, top, d.top)
	for _, list := range []struct {
		key     string
		records []record
	}{{"hosts", d.hosts}, {"switches", d.switches}, {"controllers", d.controllers}, {"links", d.links}} {
		entries, _ := file[list.key].([]any)
		for i, r := range list.records {
			if i < len(entries) {
				entry, _ := entries[i].(map[string]any)
				keepRecord(r.foreign, entry, r.fields)
			}
		}
	}
	var missing []any // lists that are missing from the file altogether
	for _, key := range []string{"hosts", "switches", "links", "controllers"} {
		if _, ok := file[key]; !ok {
			missing = append(missing, key)
		}
	}
	if missing != nil {
		store(&t.Foreign, "without", missing)
	}
}

func keepRecord(all *map[string]any, file, written map[string]any) {
	raw, instead := difference(file, written)
	if len(raw) > 0 {
		store(all, "raw", raw)
	}
	if len(instead) > 0 {
		store(all, "for", instead)
	}
}

// difference returns what of file is not in written, and the reverse. An object in both is compared
// member by member, and is then in raw if any member differs.
func difference(file, written map[string]any) (raw, instead map[string]any) {
	raw, instead = map[string]any{}, map[string]any{}
	for k, v := range file {
		w, ok := written[k]
		vm, isMap := v.(map[string]any)
		wm, isMapToo := w.(map[string]any)
		switch {
		case ok && isMap && isMapToo:
			if r, i := difference(vm, wm); len(r)+len(i) > 0 {
				raw[k] = r
				if len(i) > 0 {
					instead[k] = i
				}
			}
		case !ok:
			raw[k] = v
		case !same(v, w):
			raw[k], instead[k] = v, w
		}
	}
	for k, w := range written {
		if _, ok := file[k]; !ok {
			instead[k] = w
		}
	}
	return raw, instead
}

// restore undoes difference: it changes written back to what the file had, as far as written still
// equals what Write would have written then.
func restore(written, raw, instead map[string]any) {
	for k, r := range raw {
		w, ok := written[k]
		i, replaced := instead[k]
		wm, isMap := w.(map[string]any)
		rm, isMapToo := r.(map[string]any)
		switch {
		case ok && isMap && isMapToo:
			im, _ := i.(map[string]any)
			restore(wm, rm, im)
		case !ok && !replaced, ok && replaced && same(w, i):
			written[k] = r
		}
	}
	for k, i := range instead {
		if _, ok := raw[k]; !ok && same(written[k], i) {
			delete(written, k)
		}
	}
}

// restoreRecord restores what was kept of a record.
func restoreRecord(all, written map[string]any) {
	m := foreign(all)
	raw, _ := m["raw"].(map[string]any)
	instead, _ := m["for"].(map[string]any)
	restore(written, raw, instead)
}

// same compares two values as JSON.
func same(a, b any) bool {
	if x, ok := a.(string); ok {
		y, ok := b.(string)
		return ok && x == y
	}
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	if err1 != nil || err2 != nil {
		return false
	}
	return bytes.Equal(x, y) || bytes.Equal(normal(x), normal(y))
}

// normal writes JSON's numbers in one form: 1.0 is 1.
func normal(data []byte) []byte {
	var v any
	_ = json.Unmarshal(data, &v)
	data, _ = json.Marshal(v)
	return data
}
