package graphml

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// Limits on what is parsed, far above any network that has been mapped.
const (
	maxDepth    = 32      // nested elements
	maxElements = 200_000 // in a file
)

// thing is a node or an edge (or the graph) with its data.
type thing struct {
	pos                topology.Position
	id, source, target string
	data               map[string]string // by the attribute's name
}

// graph is the content of a file.
type graph struct {
	nodes, edges []*thing
}

// parser walks through the elements of a file.
type parser struct {
	file     string
	dec      *xml.Decoder
	problems topology.Problems
	keys     map[string]string // attribute names, by key id
	elements int
	graphs   int
	g        graph
}

var errReported = errors.New("reported")

// syntaxPrefix matches what the parser prints in front of the actual error.
var syntaxPrefix = regexp.MustCompile(`^(XML syntax error on line \d+: |xml: opening charset "[^"]*": )`)

// parse returns the file's graph, or nil if it cannot be read. Documents with a DOCTYPE are
// refused: it is how XML defines entities, and no map needs any.
func parse(file string, data []byte) (*graph, topology.Problems) {
	p := &parser{file: file, dec: xml.NewDecoder(bytes.NewReader(data)), keys: map[string]string{}}
	p.dec.CharsetReader = func(charset string, _ io.Reader) (io.Reader, error) {
		return nil, errors.New("the encoding " + charset + " is not known")
	}
	err := p.document()
	if err != nil && err != errReported {
		p.fail("a GraphML file is XML in UTF-8", "%s", syntaxPrefix.ReplaceAllString(err.Error(), ""))
	}
	if err != nil {
		return nil, p.problems
	}
	return &p.g, p.problems
}

func (p *parser) document() error {
	for {
		token, err := p.dec.Token()
		if err == io.EOF {
			return p.fail("a GraphML file is XML: <graphml><graph>…", "there is no graphml element")
		}
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case xml.Directive:
			return p.fail("remove the line", "a DOCTYPE is refused, because it can define entities without end")
		case xml.StartElement:
			if t.Name.Local != "graphml" {
				return p.fail("a GraphML file is XML: <graphml><graph>…", "the root element is %s, not graphml",
					formats.Clip(t.Name.Local))
			}
			return p.children(1, p.graphml)
		}
	}
}

// children calls read for each element inside the one just begun, up to its end; read must consume
// the element.
func (p *parser) children(depth int, read func(depth int, e xml.StartElement) error) error {
	if depth > maxDepth {
		return p.fail("", "elements are more than %d deep", maxDepth)
	}
	for {
		token, err := p.dec.Token()
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case xml.Directive:
			return p.fail("remove the line", "a DOCTYPE is refused, because it can define entities without end")
		case xml.StartElement:
			if p.elements++; p.elements > maxElements {
				return p.fail("", "holds more than %d elements, which no map needs", maxElements)
			}
			if err := read(depth+1, t); err != nil {
				return err
			}
		case xml.EndElement:
			return nil
		}
	}
}

// skip consumes an element.
func (p *parser) skip(depth int, _ xml.StartElement) error { return p.children(depth, p.skip) }

func (p *parser) graphml(depth int, e xml.StartElement) error {
	switch e.Name.Local {
	case "key":
		p.keys[attribute(e, "id")] = attribute(e, "attr.name")
	case "graph":
		if p.graphs++; p.graphs > 1 {
			p.warn("", "only the first graph of the file is read")
			break
		}
		return p.children(depth, p.graph)
	}
	return p.skip(depth, e)
}

func (p *parser) graph(depth int, e xml.StartElement) error {
	t := &thing{pos: p.pos(), id: attribute(e, "id"), source: attribute(e, "source"), target: attribute(e, "target"),
		data: map[string]string{}}
	switch e.Name.Local {
	case "node":
		if t.id == "" {
			p.problems.Add(t.pos, `write <node id="0">`, "the node has no id")
		}
		p.g.nodes = append(p.g.nodes, t)
	case "edge":
		p.g.edges = append(p.g.edges, t)
	case "hyperedge":
		p.warn("join its ends by edges to a node of their own", "a hyperedge element is left out")
	}
	return p.children(depth, func(depth int, e xml.StartElement) error {
		switch e.Name.Local {
		case "data":
			return p.data(depth, attribute(e, "key"), t)
		case "graph":
			p.warn("", "a graph within a node is left out")
		}
		return p.skip(depth, e)
	})
}

// data reads the text of a data element.
func (p *parser) data(depth int, key string, into *thing) error {
	var text strings.Builder
	for {
		token, err := p.dec.Token()
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case xml.CharData:
			text.Write(t)
		case xml.StartElement: // drawing tools put shapes here
			if p.elements++; p.elements > maxElements {
				return p.fail("", "holds more than %d elements, which no map needs", maxElements)
			}
			if err := p.skip(depth+1, t); err != nil {
				return err
			}
		case xml.EndElement:
			if name := p.keys[key]; name != "" {
				into.data[name] = strings.TrimSpace(text.String())
			}
			return nil
		}
	}
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// pos is where the element just read ends.
func (p *parser) pos() topology.Position {
	line, column := p.dec.InputPos()
	return topology.Position{File: p.file, Line: line, Column: column}
}

func (p *parser) fail(hint, format string, args ...any) error {
	p.problems.Add(p.pos(), hint, format, args...)
	return errReported
}

func (p *parser) warn(hint, format string, args ...any) {
	p.problems.Warn(p.pos(), hint, format, args...)
}
