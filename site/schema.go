package site

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Schema returns the JSON Schema (draft 2020-12) of Trivet's own lists of machines and of racks,
// which editors use for help and completion. It does not cover Ansible inventories.
func Schema() []byte {
	type object = map[string]any
	describe := func(what string, o object) object {
		o["description"] = what
		return o
	}
	word := object{"type": "string", "pattern": labelPattern.String()}
	target := func() object { return object{"type": "string", "minLength": 1} }
	capacity := func(more object) object {
		p := object{
			"labels": describe("A node that asks for one of them (on: gpu) runs here.",
				object{"anyOf": []object{word, {"type": "array", "items": word}}}),
			"cores": describe("How many processors the lab may use; else as many as there are.",
				object{"type": "number", "exclusiveMinimum": 0, "maximum": 4096}),
			"address": describe("Where the other machines reach it, if that is not where SSH does.",
				object{"type": "string"}),
		}
		p["label"] = p["labels"]
		maps.Copy(p, more)
		return object{"type": "object", "additionalProperties": false, "properties": p}
	}
	nic := func() object {
		return describe("The interface that has the VLANs; else the one with the address.",
			object{"type": "string", "pattern": nicPattern.String()})
	}
	kinds, _, agents := deviceWords()
	machine := object{"anyOf": []object{target(), {"type": "null"}, capacity(object{
		"ssh": describe("user@host:port, or a Host of ~/.ssh/config; else the machine's name here.", target()),
		"key": describe("File of the private key.", object{"type": "string"}),
		"nic": nic(),
		"vlan": describe("VLAN of its first link to the head.",
			object{"type": "integer", "minimum": 2, "maximum": maxVLAN}),
		"kind": describe(strings.Join(kinds, ", ")+": a device that becomes a switch over SSH alone.",
			object{"enum": kinds}),
		"agent": describe("What makes such a device a switch.", object{"enum": agents}),
		"ports": describe("Interfaces of such a device that may be ports of the switch.",
			object{"anyOf": []object{nic(), {"type": "array", "uniqueItems": true, "items": nic()}}}),
		"hosts": describe("It takes hosts only, so many at most; 1: the host is the machine itself.",
			object{"type": "integer", "minimum": 1, "maximum": MaxHosts}),
	})}}
	machines := object{"anyOf": []object{
		{"type": "object", "minProperties": 1, "maxProperties": MaxMachines, "additionalProperties": machine,
			"propertyNames": object{"pattern": namePattern.String(), "not": object{"const": "head"}}},
		{"type": "array", "minItems": 1, "maxItems": MaxMachines, "items": target()},
	}}
	both := func(required []string, more object) object {
		p := object{
			"keep": describe("How long a machine keeps its part of a lab once the head is gone: 10m, or forever.",
				object{"type": "string", "pattern": `^(forever|[0-9.]+(ms|s|m|min|h))$`}),
			"vlans": describe("Those that links may have whose machines have none of their own: 1000-1999.",
				object{"type": []string{"string", "integer"}, "pattern": `^[0-9]+( *- *[0-9]+)?$`}),
		}
		maps.Copy(p, more)
		return object{"type": "object", "additionalProperties": false, "required": required, "properties": p}
	}
	top := both([]string{"machines"}, object{
		"machines": describe("The machines that a lab runs at besides this one: m1: user@host.", machines),
		"carrier":  describe("What links between machines are made of; wireguard encrypts them, vlan needs a wire that all share.", object{"enum": carrierWords()}),
		"head": describe("This machine: only keeps nodes off it.", object{"anyOf": []object{
			{"const": "only"}, capacity(object{"only": object{"type": "boolean"}, "nic": nic()}),
		}}),
	})
	interfaceName := object{"type": "string", "pattern": nicPattern.String()}
	gateway := capacity(object{
		"ssh": describe("The gateway is the machine that trivet is run on.", object{"const": "local"}),
		"inner": describe("The interface to which the devices are connected; several are bonded.",
			object{"anyOf": []object{interfaceName,
				{"type": "array", "minItems": 1, "uniqueItems": true, "items": interfaceName}}}),
		"outer": describe("The interface by which the devices reach the world; else that of the default route.",
			interfaceName),
	})
	gateway["required"] = []string{"inner"}
	rack := both([]string{"gateway", "devices"}, object{
		"gateway": describe("This machine: it directs, and has all nodes that are no hosts.", gateway),
		"devices": describe("Machines each of which is a host of a lab: pi-1: pi@10.42.0.101.", machines),
		"wires": describe("Cables between interfaces of two machines: wrt-1/lan1 -- gateway/eth2.",
			object{"type": "array",
				"items": object{"type": "string", "pattern": `^[^/ ]+/[^/ ]+ *-- *[^/ ]+/[^/ ]+$`}}),
	})
	forms := []object{top, rack, machines["anyOf"].([]object)[1]}
	for _, word := range slices.Sorted(maps.Keys(providers)) {
		form := both([]string{word}, object{
			word:      describe("Machines that are made for the lab, and removed with it.", providers[word].Schema),
			"carrier": top["properties"].(object)["carrier"],
		})
		delete(form["properties"].(object), "vlans")
		forms = append(forms, form)
	}
	out, err := json.MarshalIndent(object{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://trivet.dev/schema/machines.json",
		"title": "Trivet machines", "anyOf": forms,
	}, "", "  ")
	if err != nil {
		panic(err) // impossible: made of strings and maps only
	}
	return append(out, '\n')
}
