package topology

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/words"
)

// maxGenerated is the maximum number of nodes, and of links, that Generate makes.
const maxGenerated = 1_000_000

// GenerateOptions say what a generated topology is made of.
type GenerateOptions struct {
	// Nodes is Switch (the default) or Router: the same shape made of routers, named r… instead of
	// s…, so that each host's link is a subnet of its own.
	Nodes Kind
}

// GeneratorInfo describes a generator to its users.
type GeneratorInfo struct {
	Name        string `json:"name"`
	Arguments   string `json:"arguments"` // ",k[,n=1]", to be put after the name; what is in brackets is optional
	Description string `json:"description"`
	Example     string `json:"example"`
}

// generator makes topologies of one shape.
type generator struct {
	name, description, example string
	params                     []param
	size                       func(a arguments) (nodes, links float64) // what build will make; for links, at least
	hosts                      func(a arguments) float64                // how many of the nodes are hosts
	build                      func(b *builder, a arguments) error
}

// param is an argument of a generator.
type param struct {
	name     string
	min, max float64
	byDef    float64 // default value, if optional
	optional bool
	real     bool // any number; otherwise whole numbers only
	even     bool
}

// arguments are the values of a generator's params, by name.
type arguments map[string]float64

func (a arguments) int(name string) int { return int(a[name]) }

// count is a required whole number of at least min.
func count(name string, min float64) param { return param{name: name, min: min, max: maxGenerated} }

// or makes an argument optional.
func (p param) or(byDef float64) param { p.optional, p.byDef = true, byDef; return p }

// Generate makes a topology from a specification in the syntax of mn's --topo: the name of a
// generator, then its arguments by position or by name ("tree,3", "tree,depth=3,fanout=2"). The
// error, a Problems, names every wrong argument.
//
// Names, the order of links and thus port numbers are those of Mininet 2.3 if it has the same
// shape: a switch's hosts come before its links to other switches. The same specification always
// gives the same topology.
func Generate(spec string, opts GenerateOptions) (*Topology, error) {
	opts.Nodes = cmp.Or(opts.Nodes, Switch)
	if opts.Nodes != Switch && opts.Nodes != Router {
		return nil, fmt.Errorf("generated topologies cannot have nodes of kind %q; choose %s or %s", opts.Nodes, Switch,
			Router)
	}
	g, a, err := readSpec(spec)
	if err != nil {
		return nil, err
	}
	b := newBuilder(opts.Nodes)
	if err := g.build(b, a); err != nil {
		return nil, err
	}
	return &Topology{Name: g.topologyName(a), Nodes: slices.Concat(b.inner, b.hosts), Links: b.links}, nil
}

// Size returns how many nodes Generate would make from a specification, hosts and others. It makes
// none, so it is fast. Its errors are those of Generate.
func Size(spec string) (hosts, others int, err error) {
	g, a, err := readSpec(spec)
	if err != nil {
		return 0, 0, err
	}
	nodes, _ := g.size(a)
	hosts = int(g.hosts(a))
	return hosts, int(nodes) - hosts, nil
}

// readSpec finds the generator of a specification, and its arguments, and checks that the result
// would not be too large.
func readSpec(spec string) (*generator, arguments, error) {
	words := strings.Split(spec, ",")
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	g, err := generatorNamed(words[0])
	if err != nil {
		return nil, nil, err
	}
	a, err := g.parse(words[1:])
	if err != nil {
		return nil, nil, err
	}
	return g, a, g.checkSize(a)
}

// Generators describes all generators, the simple ones first.
func Generators() []GeneratorInfo {
	out := make([]GeneratorInfo, len(generators))
	for i, g := range generators {
		out[i] = GeneratorInfo{Name: g.name, Arguments: g.usage(), Description: g.description, Example: g.example}
	}
	return out
}

func generatorNamed(name string) (*generator, error) {
	var names []string
	for i := range generators {
		if generators[i].name == name {
			return &generators[i], nil
		}
		names = append(names, generators[i].name)
	}
	hint := words.Choose(names)
	if near := DidYouMean(name, names); near != "" {
		hint = near + " " + hint
	}
	return nil, Problems{{Message: fmt.Sprintf("there is no generator %q", name), Hint: hint}}
}

// usage shows the arguments as they follow the name: ",depth[,fanout=2]".
func (g *generator) usage() string {
	var s strings.Builder
	for _, p := range g.params {
		if p.optional {
			fmt.Fprintf(&s, "[,%s=%s]", p.name, number(p.byDef))
		} else {
			s.WriteString("," + p.name)
		}
	}
	return s.String()
}

// parse reads the words after the generator's name.
func (g *generator) parse(words []string) (arguments, error) {
	a, bad := arguments{}, Problems{}
	wrong := func(format string, args ...any) {
		bad.Add(Position{}, "write "+g.example, g.name+": "+format, args...)
	}
	for i, w := range words {
		p, value, err := g.argument(i, w)
		if err != nil {
			wrong("%v", err)
			continue
		}
		if _, twice := a[p.name]; twice {
			wrong("%s is given twice", p.name)
			continue
		}
		if a[p.name], err = p.parse(value); err != nil {
			wrong("%v", err)
		}
	}
	for _, p := range g.params {
		if _, given := a[p.name]; given {
			continue
		}
		if a[p.name] = p.byDef; !p.optional {
			wrong("%s is missing, %s", p.name, p.want())
		}
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	return a, nil
}

// argument finds the param that a word at a position is for.
func (g *generator) argument(position int, word string) (param, string, error) {
	if name, value, named := strings.Cut(word, "="); named {
		var names []string
		for _, p := range g.params {
			if p.name == strings.TrimSpace(name) {
				return p, strings.TrimSpace(value), nil
			}
			names = append(names, p.name)
		}
		message := fmt.Sprintf("there is no argument %q", name)
		if near := DidYouMean(name, names); near != "" {
			return param{}, "", errors.New(message + " (" + near + ")")
		}
		return param{}, "", errors.New(message + ", " + g.has())
	}
	if position >= len(g.params) {
		return param{}, "", fmt.Errorf("%q is one argument too many, %s", word, g.has())
	}
	return g.params[position], word, nil
}

func (g *generator) has() string {
	if len(g.params) == 0 {
		return "it takes none"
	}
	return "it is " + g.name + g.usage()
}

func (p param) parse(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if !p.real {
		var whole int
		whole, err = strconv.Atoi(s)
		v = float64(whole)
	}
	if err != nil || !(v >= p.min && v <= p.max) || p.even && math.Mod(v, 2) != 0 {
		return 0, fmt.Errorf("%s is %q, not %s", p.name, s, p.want())
	}
	return v, nil
}

// want says which values the argument may have.
func (p param) want() string {
	kind := "a whole number"
	switch {
	case p.real:
		kind = "a number"
	case p.even:
		kind = "an even number"
	}
	return fmt.Sprintf("%s from %s to %s", kind, number(p.min), number(p.max))
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func (g *generator) checkSize(a arguments) error {
	nodes, links := g.size(a)
	for _, of := range []struct {
		what string
		n    float64
	}{{"nodes", nodes}, {"links", links}} {
		if of.n > maxGenerated {
			return tooLarge(g.name, of.what, of.n, g.example)
		}
	}
	return nil
}

func tooLarge(generator, what string, n float64, example string) error {
	return Problems{{Message: fmt.Sprintf("%s: that would be %s %s, and the limit is %d", generator, magnitude(n), what,
		maxGenerated), Hint: "write " + example}}
}

// magnitude formats a whole number readably: exactly if it is short.
func magnitude(n float64) string {
	switch {
	case n < 1e12:
		return number(math.Ceil(n))
	case math.IsInf(n, 1):
		return "countless"
	}
	return fmt.Sprintf("%.2g", n)
}

// topologyName is the generator's name and its whole-number arguments up to the last that is not
// the default: "linear-4-2".
func (g *generator) topologyName(a arguments) string {
	name, pending := g.name, ""
	for _, p := range g.params {
		if p.real || p.name == "seed" {
			continue
		}
		pending += "-" + number(a[p.name])
		if !p.optional || a[p.name] != p.byDef || name == g.name {
			name, pending = name+pending, ""
		}
	}
	return name
}
