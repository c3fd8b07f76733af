package datapath

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"trivet.dev/trivet/topology"
)

// Config reads a kind of configuration from a running node, and loads it into one. A kind is a row
// in the table of topology/config.go, and a package that registers its Config.
type Config struct {
	Kind string

	// Check finds what is wrong with a text, on any machine and without changing anything.
	Check func(t *topology.Topology, n *topology.Node, c topology.ConfigFile) topology.Problems

	// Try has the tool itself check, as root, a text that Check has passed, in a place where it
	// cannot change anything; nil: no tool can.
	Try func(ctx context.Context, n *topology.Node, c topology.ConfigFile) error

	// Read returns what the node has now of what was put there by hand; "" is nothing. was is the
	// text that was loaded: the parts of it that still hold are returned as they are written there.
	// The error is Untold if the node does not allow to find out.
	Read func(ctx context.Context, in Running, was string) (string, error)

	// Load replaces the text was, which was loaded before ("": nothing), by another one. It can be
	// repeated; settings of was that are gone already are no error. Nil: the node's fabric loads
	// it.
	Load func(ctx context.Context, in Running, was, text string) error
}

// Running is a node of a lab that is up.
type Running struct {
	*topology.Node
	Fabric Fabric // what forwards for it; nil if nothing does

	Foreign bool // a controller that is not Trivet's decides for it

	// ByHand says whether a flow entry with a cookie was made by hand, and with which cookie to
	// make it again; if not, it belongs to one of the controller's apps, which makes it again by
	// itself.
	ByHand func(cookie uint64) (again uint64, is bool)

	// Inside runs f in the node's network namespace; Run runs a program of this machine in the
	// node.
	Inside func(f func() error) error
	Run    func(ctx context.Context, input string, command ...string) (output string, err error)
}

// Untold says why it is unknown what was put into a node by hand.
type Untold string

func (u Untold) Error() string { return string(u) }

// Flowed is a fabric whose switches' flow entries can be read and changed by others than their
// controllers. Entries are lines in the syntax of ovs-ofctl(8).
type Flowed interface {
	// FlowEntries returns the entries of a switch, without their counters.
	FlowEntries(ctx context.Context, n *topology.Node) ([]string, error)
	// ChangeFlows removes entries, and then adds others.
	ChangeFlows(ctx context.Context, n *topology.Node, remove, add []string) error
}

// Routed is a fabric whose routers run daemons with a configuration given by the topology's author.
type Routed interface {
	// OwnRouting returns the configuration that they have now.
	OwnRouting(ctx context.Context, n *topology.Node) (string, error)
}

var configs []Config

// RegisterConfig registers how a kind of configuration is read and loaded. It must be called in an
// init function of a package that datapath/all imports.
func RegisterConfig(c Config) {
	known := slices.ContainsFunc(topology.ConfigKinds(), func(k topology.ConfigKind) bool { return k.Name == c.Kind })
	if _, ok := ConfigOf(c.Kind); ok || !known {
		panic(fmt.Sprintf("datapath: %q is not a kind of configuration, or there are two of it", c.Kind))
	}
	configs = append(configs, c)
}

// ConfigOf returns the Config of a kind.
func ConfigOf(kind string) (c Config, ok bool) {
	i := slices.IndexFunc(configs, func(c Config) bool { return c.Kind == kind })
	if i < 0 {
		return c, false
	}
	return configs[i], true
}

// checkConfigs finds what is wrong with the configurations of a topology's nodes.
func checkConfigs(t *topology.Topology) (problems topology.Problems) {
	for _, n := range t.Nodes {
		for _, f := range n.Config {
			if c, ok := ConfigOf(f.Kind); ok {
				problems = append(problems, c.Check(t, n, f)...)
			}
		}
	}
	return problems
}

// TryConfigs has the tools check the configurations of a topology's nodes.
func TryConfigs(ctx context.Context, t *topology.Topology) error {
	var errs []error
	for _, n := range t.Nodes {
		for _, f := range n.Config {
			if c, ok := ConfigOf(f.Kind); ok && c.Try != nil {
				errs = append(errs, c.Try(ctx, n, f))
			}
		}
	}
	return errors.Join(errs...)
}

// LoadConfigs loads a node's own configurations in place of those of before. Unchanged ones are
// loaded again if the node is a switch that has lost its flow entries since (emptied).
func LoadConfigs(ctx context.Context, in Running, before *topology.Node, emptied bool) error {
	for _, k := range topology.ConfigKinds() {
		c, ok := ConfigOf(k.Name)
		was, text := before.ConfigOf(k.Name), in.ConfigOf(k.Name)
		if !ok || c.Load == nil || was == text && (text == "" || !emptied) {
			continue
		}
		if err := c.Load(ctx, in, was, text); err != nil {
			return fmt.Errorf("%s: config: %s: %w", in.Name, k.Name, err)
		}
	}
	return nil
}

// LoadFlowsAgain reloads the flow entries of a switch with a foreign controller: some controllers
// delete all entries of a switch first.
func LoadFlowsAgain(ctx context.Context, in Running) error {
	text := in.ConfigOf("flows")
	if text == "" || !in.Foreign {
		return nil
	}
	c, _ := ConfigOf("flows")
	if err := c.Load(ctx, in, text, text); err != nil {
		return fmt.Errorf("%s: config: flows: %w", in.Name, err)
	}
	return nil
}

// ReadConfigs reads a node's configurations of all kinds that it can have; remarks say which are
// unknown, and why.
func ReadConfigs(ctx context.Context, in Running) (out []topology.ConfigFile, remarks []string, err error) {
	out = []topology.ConfigFile{}
	for _, k := range topology.ConfigKinds() {
		c, ok := ConfigOf(k.Name)
		if !ok || !k.Of(in.Node) {
			continue
		}
		var untold Untold
		text, err := c.Read(ctx, in, in.ConfigOf(k.Name))
		switch {
		case errors.As(err, &untold):
			remarks = append(remarks, untold.Error())
		case err != nil:
			return nil, nil, fmt.Errorf("%s: %s: %w", in.Name, k.Name, err)
		default:
			out = append(out, topology.ConfigFile{Kind: k.Name, TextFile: topology.TextFile{Text: text}})
		}
	}
	return out, remarks, nil
}
