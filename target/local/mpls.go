package local

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/topology"
)

// MPLS in nodes: which devices accept packets with labels, what is done with labels
// (topology.LabelRoute), and routes that push labels.

// mplsSettings is the directory of the kernel's settings of MPLS; it is there if the kernel has
// MPLS.
const mplsSettings = "/proc/sys/net/mpls"

// checkMPLS says that this kernel lacks MPLS, or routes that push labels, if nodes need them. The
// kernel loads the modules when it is asked for either.
func checkMPLS(t *topology.Topology) error {
	var needs *topology.Node
	var pushes *topology.Node
	var route topology.Route
	ends := topology.EndsOf(t)
	for _, n := range t.Nodes {
		if needs == nil && n.PlatformLabels(ends[n.Name]) > 0 {
			needs = n
		}
		for _, r := range n.Routes {
			if pushes == nil && r.Labels != "" {
				pushes, route = n, r
			}
		}
	}
	if needs == nil || os.Geteuid() != 0 {
		return nil
	}
	ns, err := inside.New()
	if err != nil {
		return err
	}
	defer ns.Close()
	return inside.File(ns, func() error {
		lacks := func(what, module string) error {
			return lack.New(what, ":  ", "modprobe "+module+", or take another kernel")
		}
		if has, err := hasMPLS(); err != nil {
			return err
		} else if !has {
			return lacks(fmt.Sprintf("%s %s: this kernel has no MPLS (CONFIG_MPLS_ROUTING)", needs.Kind, needs.Name),
				"-a mpls_router mpls_iptunnel")
		}
		if pushes == nil {
			return nil
		}
		if has, err := hasPush(route.Labels); err != nil {
			return err
		} else if !has {
			return lacks(fmt.Sprintf("%s %s: route %s: this kernel has no routes that give packets labels (CONFIG_MPLS_IPTUNNEL)", pushes.Kind, pushes.Name, route), "mpls_iptunnel")
		}
		return nil
	})
}

// hasMPLS says whether the kernel has MPLS, in the thread's namespace.
func hasMPLS() (bool, error) {
	// No such socket exists, but the request loads the module.
	if s, err := unix.Socket(unix.AF_MPLS, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err == nil {
		unix.Close(s)
	}
	_, err := os.Stat(mplsSettings)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// hasPush says whether the kernel has routes that push labels, in the thread's namespace.
func hasPush(labels topology.LabelStack) (bool, error) {
	b, err := netbatch.New()
	if err != nil {
		return false, err
	}
	defer b.Close()
	b.SetUp("lo", 1, true)
	b.AddRoute(topology.Route{To: netip.MustParsePrefix("192.0.2.0/24"), Labels: labels}, 1, 0)
	err = b.Flush()
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("try a route with labels: %w", err)
	}
	return true, nil
}

// setMPLS sets, in the thread's namespace, the range of labels of a node, and which of its devices
// accept packets with labels. Interfaces that accept them according to an old node, which may be
// nil, and no longer according to n, stop doing so.
func setMPLS(n, old *topology.Node, ends []*topology.Endpoint) error {
	var list []sysctl
	if most := n.PlatformLabels(ends); most > 0 {
		now, err := readSysctl(mplsSettings + "/platform_labels")
		if err != nil {
			return err
		}
		if knows, _ := strconv.Atoi(now); knows < most { // programs in the node may know more
			list = append(list, sysctl{mplsSettings + "/platform_labels", strconv.Itoa(most), false})
		}
	}
	for _, e := range ends {
		if e.MPLS {
			list = append(list, takesLabels(e.Interface, true))
		}
	}
	if slices.ContainsFunc(n.Labels, func(l topology.LabelRoute) bool { return l.Device == "lo" }) {
		list = append(list, takesLabels("lo", true)) // packets with a further label re-enter there
	}
	was := map[string]bool{}
	if old != nil {
		for _, i := range old.Interfaces {
			was[i.Name] = i.MPLS
		}
	}
	for _, i := range n.Interfaces {
		if i.MPLS || was[i.Name] {
			list = append(list, takesLabels(i.Name, i.MPLS))
		}
	}
	return writeSysctls(list)
}

// takesLabels is the setting of whether a device accepts packets with labels or drops them.
func takesLabels(device string, does bool) sysctl {
	value := "0"
	if does {
		value = "1"
	}
	return sysctl{mplsSettings + "/conf/" + device + "/input", value, false}
}

// setLabels replaces, in the thread's namespace, the label routes of an old node, which may be nil,
// by those of a node. A label that both have always has a route.
func setLabels(b *netbatch.Batch, n, old *topology.Node, indices map[string]int) error {
	stays := map[int]bool{}
	for _, l := range n.Labels {
		stays[l.Label] = true
		b.AddLabelRoute(l, indexAmong(l.Device, indices))
	}
	if err := b.Flush(); err != nil || old == nil {
		return err
	}
	for _, l := range old.Labels {
		if !stays[l.Label] {
			b.DelLabelRoute(l)
		}
	}
	_ = b.Flush() // fails for those that the user has deleted already, or that went with their device
	return nil
}

// indexAmong returns the index of one of a node's devices, or of its loopback device.
func indexAmong(device string, indices map[string]int) int {
	if device == "lo" {
		return 1
	}
	return indices[device]
}
