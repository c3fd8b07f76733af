// Package graphml reads GraphML files as published by the Internet Topology Zoo: maps of real
// networks whose nodes have a label, a latitude and a longitude, and whose edges have a speed.
//
// A node becomes a switch with one host: h1, h2, … in the file's order. External nodes (other
// networks) and hyperedge nodes (links with more than two ends) become switches without a host.
// Edges become links, including parallel ones; loops are left out. A label that cannot be a node's
// name is kept in Foreign["graphml"].
package graphml

import (
	"regexp"

	"trivet.dev/trivet/topology/formats"
)

// name is the format's name in commands, and the key in Foreign of what it keeps.
const name = "graphml"

func init() {
	formats.Register(&formats.Format{
		Name:       name,
		Title:      "GraphML (Internet Topology Zoo)",
		Extensions: []string{".graphml", ".xml"},
		Detect:     detect,
		Read:       Read,
	})
}

var root = regexp.MustCompile(`<(\w+:)?graphml[\s>/]`)

func detect(data []byte) bool { return root.Match(data) }
