// Package clab reads and writes the topologies of containerlab: YAML files ending in .clab.yml, or
// others with topology: and nodes below.
//
//	name: lab
//	topology:
//	  kinds:
//	    linux: {image: debian:12}
//	  nodes:
//	    h1: {kind: linux, exec: [ip addr add 10.0.0.1/24 dev eth1]}
//	    r1: {kind: linux, image: frrouting/frr}
//	  links:
//	    - endpoints: ["h1:eth1", "r1:eth1"]
//
// A node with an image becomes a container as containerlab makes it: privileged, and without
// addresses at its links, as the commands under exec and its programs set those. It is a router,
// with the kernel's forwarding, if its kind or image is that of a router or if it has several
// links; otherwise it is a host. Bridges become switches, which the lab makes. What means nothing
// to Trivet is kept in Foreign["clab"] of the topology, its nodes and links, and written back.
package clab

import (
	"regexp"
	"slices"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/losses"
)

// name is the format's name in commands, and the key in Foreign of what it keeps.
const name = "clab"

func init() {
	formats.Register(&formats.Format{
		Name:       name,
		Title:      "containerlab",
		Extensions: []string{".clab.yml", ".clab.yaml", ".yml", ".yaml"},
		Detect:     detect,
		Read:       Read,
		Write:      Write,
	})
}

var (
	topologyKey = regexp.MustCompile(`(?m)^["']?topology["']?[ \t]*:[ \t]*([#{].*)?\r?$`)
	nodesKey    = regexp.MustCompile(`[ \t{,]["']?nodes["']?[ \t]*:`)
)

// detect looks for topology at the beginning of a line, and for an indented nodes after it.
func detect(data []byte) bool {
	at := topologyKey.FindIndex(data)
	return at != nil && nodesKey.Match(data[at[0]:])
}

// linkMTU is the MTU of a link for which the file gives none: containerlab's default of 9500 is
// more than Trivet's links can have.
const (
	linkMTU = topology.MaxMTU
	clabMTU = 9500
)

// Write returns the topology as a file for containerlab, and what the file cannot hold. Addresses
// and routes, including assigned ones, become commands of nodes. Files next to the topology's that
// are given to nodes become binds.
func Write(t *topology.Topology) ([]byte, []formats.Loss, error) {
	t = inCommands(bound(t))
	data := encode(t)
	lost, err := losses.Written(t, data, Read)
	return data, append(lost, imageless(t)...), err
}

// bound returns a topology in which files that are given to nodes are bind mounts, except for those
// whose text is in the topology.
func bound(t *topology.Topology) *topology.Topology {
	out := t.Clone()
	for _, n := range out.Nodes {
		n.Files = slices.DeleteFunc(n.Files, func(f topology.NodeFile) bool {
			if f.File != "" {
				n.Dirs = append(n.Dirs, topology.PrivateDir{Path: f.Path, Source: f.File})
			}
			return f.File != ""
		})
	}
	return out
}
