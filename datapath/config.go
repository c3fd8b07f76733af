package datapath

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"trivet.dev/trivet/topology"
)

// Config is what reads a kind of configuration from a running node, and loads it into one. A kind
// is a row in the table of topology/config.go, and a package that registers its Config.
type Config struct {
	Kind string

	// Check finds what is wrong with a text, on any machine and without changing anything.
	Check func(t *topology.Topology, n *topology.Node, c topology.ConfigFile) topology.Problems

	// Try has the tool itself check a text that Check has passed, as root, where it can change
	// nothing; nil: there is none.
	Try func(ctx context.Context, n *topology.Node, c topology.ConfigFile) error

	// Read returns what the node has now, in so far as it has been put there by hand; "" is
	// nothing. was is what was loaded: what of it is still so stays as it is written there. The
	// error is Untold if that cannot be known of this node.
	Read func(ctx context.Context, in Running, was string) (string, error)

	// Load replaces what was loaded before ("": nothing) by another text. It can be repeated, and
	// what is not there any more is not missed. Nil: the node's fabric loads it.
	Load func(ctx context.Context, in Running, was, text string) error
}

// Running is a node of a running lab.
type Running struct {
	*topology.Node
	Fabric Fabric // what forwards for it; nil if nothing does

	Foreign bool // a controller that is not Trivet's decides for it

	// ByHand says whether a flow entry with a cookie has been put there by hand, and with which
	// cookie to put it there again; if not, one of the controller's apps does so by itself.
	ByHand func(cookie uint64) (again uint64, is bool)

	// Inside runs f in the node's network; Run runs a program of this machine in the node.
	Inside func(f func() error) error
	Run    func(ctx context.Context, input string, command ...string) (output string, err error)
}

// Untold says why it is not known what somebody has put into a node by hand.
type Untold string

func (u Untold) Error() string { return string(u) }

// Flowed is a fabric whose switches' flow entries can be read and changed by others than their
// controllers. Entries are lines, as ovs-ofctl(8) has them.
type Flowed interface {
	// FlowEntries are those of a switch, without what they count.
	FlowEntries(ctx context.Context, n *topology.Node) ([]string, error)
	// ChangeFlows removes entries, and then adds others.
	ChangeFlows(ctx context.Context, n *topology.Node, remove, add []string) error
}

// Routed is a fabric whose routers run daemons with a configuration of the router's own.
type Routed interface {
	// OwnRouting is the configuration that they have now.
	OwnRouting(ctx context.Context, n *topology.Node) (string, error)
}

var configs []Config

// RegisterConfig makes known how nodes are given a kind of configuration. It must be called in an
// init function of a package that datapath/all imports.
func RegisterConfig(c Config) {
	known := slices.ContainsFunc(topology.ConfigKinds(), func(k topology.ConfigKind) bool { return k.Name == c.Kind })
	if _, ok := ConfigOf(c.Kind); ok || !known {
		panic(fmt.Sprintf("datapath: %q is not a kind of configuration, or there are two of it", c.Kind))
	}
	configs = append(configs, c)
}

// ConfigOf returns what reads and loads a kind of configuration.
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

// LoadConfigs gives a node its own configurations in place of those that it had before. What has
// not changed is loaded again if the node, a switch, has lost its flow entries since.
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

// LoadFlowsAgain loads the flow entries of a switch whose controller is not Trivet's once more:
// some controllers empty a switch first.
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

// ReadConfigs reads what a node has of each kind that it can have; remarks say what cannot be told,
// and why.
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
