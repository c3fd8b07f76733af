package local

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/topology"
)

// Rules of nodes' policy routing (topology.Rule), and their permanent neighbours.

// checkRules says that this kernel lacks policy routing, if nodes have rules. That shows only when
// a rule is made.
func checkRules(t *topology.Topology) error {
	type first struct {
		node *topology.Node
		rule topology.Rule
	}
	tried := map[byte]first{} // by family
	for _, n := range t.Nodes {
		for _, rule := range n.Rules {
			for _, family := range familiesOf(rule, t.IPv6) {
				if _, ok := tried[family]; !ok {
					tried[family] = first{n, rule}
				}
			}
		}
	}
	if len(tried) == 0 || os.Geteuid() != 0 {
		return nil
	}
	ns, err := inside.New()
	if err != nil {
		return err
	}
	defer ns.Close()
	b, err := netbatch.In(ns)
	if err != nil {
		return err
	}
	defer b.Close()
	for family, f := range tried {
		b.AddRule(f.rule, family)
		if err := b.Flush(); errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
			option := map[byte]string{unix.AF_INET: "CONFIG_IP_MULTIPLE_TABLES",
				unix.AF_INET6: "CONFIG_IPV6_MULTIPLE_TABLES"}[family]
			return lack.New(fmt.Sprintf("%s %s: rule %s: this kernel has no policy routing for it (%s)", f.node.Kind,
				f.node.Name, f.rule, option),
				":  ", "take the rules out, or another kernel")
		}
	}
	return nil
}

// setRules replaces, in the thread's namespace, the rules of an old node, which may be nil, by
// those of a node. A rule that both have stays in place.
func setRules(b *netbatch.Batch, n, old *topology.Node, ipv6 topology.IPv6) error {
	keeps := lists.Set(n.Rules, topology.Rule.String)
	if old != nil {
		for _, rule := range old.Rules {
			if keeps[rule.String()] {
				continue
			}
			for _, family := range familiesOf(rule, ipv6) {
				b.DelRule(rule, family)
			}
		}
		_ = b.Flush() // fails for those that the user has deleted already
	}
	for _, rule := range n.Rules {
		for _, family := range familiesOf(rule, ipv6) {
			b.AddRule(rule, family)
			if err := b.Flush(); err != nil && !errors.Is(err, unix.EEXIST) {
				return err
			}
		}
	}
	return nil
}

// familiesOf returns the kernel's numbers of the address families that a rule applies to.
func familiesOf(rule topology.Rule, ipv6 topology.IPv6) (out []byte) {
	v4, v6 := rule.Families(ipv6)
	if v4 {
		out = append(out, unix.AF_INET)
	}
	if v6 {
		out = append(out, unix.AF_INET6)
	}
	return out
}

// setNeighbors replaces, in the thread's namespace, the permanent neighbours of an old node, which
// may be nil, by those of a node. Those on devices that are down are added when the device comes
// up.
func setNeighbors(b *netbatch.Batch, n, old *topology.Node, indices map[string]int, down map[string]bool) error {
	if old != nil {
		for _, x := range old.Neighbors {
			if index := indices[x.Device]; index > 0 && !slices.Contains(n.Neighbors, x) {
				b.DelNeighbor(x, index)
			}
		}
		_ = b.Flush() // fails for those that the user has deleted already, or that went with their device
	}
	for _, x := range n.Neighbors {
		if !down[x.Device] {
			b.AddNeighbor(x, indices[x.Device])
		}
	}
	return b.Flush()
}
