// Package graphml reads GraphML files as the Internet Topology Zoo publishes
// them: maps of real networks whose nodes have a label, a latitude and a
// longitude, and whose edges have a speed.
//
// A node becomes a switch with one host, h1, h2, … in the file's order. External
// nodes (other networks) and hyperedge nodes (a link with more than two ends)
// become switches without one. Edges become links, parallel ones too; loops are
// left out. The original label, where it is no name for a node, is kept in
// Foreign["graphml"].
package graphml

import (
	"regexp"

	"trivet.dev/trivet/topology/formats"
)

// name is how commands call the format, and the key of what it keeps in Foreign.
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
