package trivet

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

// leaf is a type of single values: how they are read, written, and described in the schema.
type leaf struct {
	parse   func(d *decoder, text string) (any, error)
	write   func(v any) string // nil: fmt.Sprint
	pattern string             // of the text, for the schema; "": any
	words   []string           // all possible values, for the schema
}

// leaves are looked up by a field's "as" tag, else by its type.
var leaves = map[any]leaf{
	reflect.TypeFor[string](): {parse: func(_ *decoder, s string) (any, error) { return s, nil }},
	reflect.TypeFor[bool]():   {parse: simple(parseBool), words: []string{"true", "false"}},
	reflect.TypeFor[int]():    {parse: simple(parseIndex), pattern: `^[0-9]+$`},

	reflect.TypeFor[topology.Management](): {parse: simple(topology.ParseManagement),
		pattern: `^(true|false|yes|no|on|off|[0-9.]+/[0-9]+)$`},

	reflect.TypeFor[netip.Prefix](): {parse: simple(parsePrefix), pattern: `^[0-9a-fA-F.:]+/[0-9]+$`},
	reflect.TypeFor[netip.Addr]():   {parse: simple(parseAddr), pattern: `^[0-9a-fA-F.:]+(%.+)?$`},
	interfaceAddresses:              {parse: interfaceAddress, pattern: `^[0-9a-fA-F.:]+(/[0-9]+)?$`},
	"own address":                   {parse: interfaceAddress, pattern: `^[0-9a-fA-F.:]+(/[0-9]+)?$`},
	"loopback address":              {parse: simple(hostAddress), pattern: `^[0-9a-fA-F.:]+(/[0-9]+)?$`},
	"controller address":            {parse: simple(parseControllerAddress), pattern: `^((tcp|ssl):.+:[0-9]+|trivet)$`},

	reflect.TypeFor[topology.Rate](): {parse: simple(topology.OrNone(topology.ParseRate)),
		write: topology.TextOrNone, pattern: `^(none|[0-9.]+ *[kKmMgG]?([bB][iI][tT](/?[sS])?|[bB][pP][sS]))$`},
	reflect.TypeFor[topology.Duration](): {parse: simple(topology.OrNone(topology.ParseDuration)),
		write: topology.TextOrNone, pattern: `^(none|0|[0-9.]+ *([nuµm]?s|[um]?sec|m|min|h))$`},
	reflect.TypeFor[topology.Fraction](): {parse: simple(topology.OrNone(topology.ParseFraction)),
		write: topology.TextOrNone, pattern: `^(none|[0-9.eE-]+ *%?)$`},
	reflect.TypeFor[topology.Frequency](): {parse: simple(topology.ParseFrequency),
		pattern: `^[0-9.]+ *[kKmMgG]?[hH][zZ]$`},
	reflect.TypeFor[topology.Cost]():  {parse: simple(topology.ParseCost), pattern: `^[0-9.]+ *([nuµm]?s|cycles?)$`},
	reflect.TypeFor[topology.Queue](): {pattern: queuePattern()}, // an option of links reads it
	"port":                            {parse: simple(parsePort), pattern: `^[0-9]+$`},
	reflect.TypeFor[topology.CPU]():   {parse: simple(topology.ParseCPU), pattern: `^[0-9.eE-]+%?$`},
	reflect.TypeFor[topology.Bytes](): {parse: simple(topology.ParseBytes),
		pattern: `^[0-9.]+ *[kKmMgG]?[iI]?[bB]?$`},
	reflect.TypeFor[topology.Port](): {parse: simple(topology.ParsePublished),
		pattern: `^((\[[0-9a-fA-F:]+\]|[0-9.]+):)?[0-9]+(:[0-9]+)?(/(tcp|udp))?$`},
	reflect.TypeFor[topology.Restart](): {parse: simple(topology.ParseRestart),
		pattern: `^(no|on-failure(:[1-9][0-9]*)?|always|unless-stopped)$`},
	reflect.TypeFor[topology.MAC](): {parse: simple(topology.ParseMAC),
		pattern: `^[0-9a-fA-F]{1,2}([:-][0-9a-fA-F]{1,2}){5}$`},
	reflect.TypeFor[topology.DPID](): {parse: simple(topology.ParseDPID), pattern: `^(0[xX])?[0-9a-fA-F:]+$`,
		write: func(v any) string { return fmt.Sprintf("%#x", uint64(v.(topology.DPID))) }},
	"count":   {parse: simple(parseCount), pattern: `^[0-9]+$`},
	"version": {parse: simple(parseVersion), pattern: `^1\.[0-5]$`},

	reflect.TypeFor[topology.TextFile](): {parse: func(_ *decoder, s string) (any, error) {
		return topology.ParseTextFile(s), nil
	},
		write: func(v any) string { return v.(topology.TextFile).Written() }},

	"unless off": unlessOff,
	"boot":       oneOf(topology.BootNetwork),
	"nic":        oneOf(topology.NICs...),
	"firmware":   oneOf(topology.FirmwareUEFI),

	reflect.TypeFor[topology.Routing](): oneOf(topology.Proactive, topology.Reactive),
	reflect.TypeFor[topology.IPv6](): oneOf(topology.IPv6Off, topology.IPv6LinkLocal, topology.IPv6Assigned,
		topology.IPv6Auto),
	reflect.TypeFor[topology.FailMode](): oneOf(topology.Standalone, topology.Secure),
	reflect.TypeFor[linkState]():         oneOf(linkState("up"), linkState("down")),

	reflect.TypeFor[topology.VLANs](): {parse: simple(topology.ParseVLANs),
		pattern: `^(all|[0-9]+(-[0-9]+)?( *, *[0-9]+(-[0-9]+)?)*)$`},
	reflect.TypeFor[topology.BondMode](): oneOf(topology.BondModes...),
	reflect.TypeFor[topology.RoutePreference](): oneOf(topology.PreferenceLow, topology.PreferenceMedium,
		topology.PreferenceHigh),
	reflect.TypeFor[topology.BalanceBy]():     oneOf(topology.BalanceECMP, topology.BalanceOff, topology.BalanceLoad),
	reflect.TypeFor[topology.BalancePer]():    oneOf(topology.PerPrefix, topology.PerPart, topology.PerFlow),
	reflect.TypeFor[topology.BalanceChoose](): oneOf(topology.ChooseBusy, topology.ChooseOnce, topology.ChooseAlways),
	reflect.TypeFor[topology.WifiBand]():      oneOf(topology.Band2GHz, topology.Band5GHz),
	reflect.TypeFor[topology.Route](): {parse: simple(topology.ParseRoute),
		pattern: `^\S+( +(discard|onlink|(via|dev|table|src|labels|distance|metric|tag) +\S+))+$`},
	reflect.TypeFor[topology.Rule](): {parse: simple(topology.ParseRule), pattern: `^(not +)?\S.*$`},
	reflect.TypeFor[topology.Neighbor](): {parse: simple(topology.ParseNeighbor),
		pattern: `^[0-9a-fA-F.:]+( +(lladdr|dev) +\S+)+$`},
	reflect.TypeFor[topology.Masquerade](): {parse: simple(parseMasquerade),
		pattern: `^([0-9a-fA-F:./]+)?( *dev +\S+)?$`},
	reflect.TypeFor[topology.RoutesMode](): oneOf(topology.RoutesComputed, topology.RoutesAsWritten),
	reflect.TypeFor[topology.LabelRoute](): {parse: simple(topology.ParseLabelRoute),
		pattern: `^[0-9]+ +(pop|swap +[0-9/]+)( +via +[0-9a-fA-F.:]+)?( +dev +\S+)?$`},
}

// interfaceAddresses is what lists of addresses are read as that may also be none.
const interfaceAddresses = "interface address"

func leafOf(t reflect.Type, as string) (leaf, bool) {
	if as != "" {
		if l, ok := leaves[as]; ok {
			return l, true
		}
	}
	if i := slices.IndexFunc(topology.LinkOptions, func(o topology.LinkOption) bool { return o.Name == as }); i >= 0 {
		l := leaves[t] // rates, time spans and shares look as they do elsewhere
		if t.Kind() == reflect.Int {
			l.pattern = `^(none|[0-9]+)$`
		}
		l.parse, l.write = simple(topology.LinkOptions[i].Parse), topology.TextOrNone
		return l, true
	}
	if t == reflect.TypeFor[topology.Datapath]() {
		return oneOf(datapathNames()...), true
	}
	switch t { // sources of routes are protocols, too
	case reflect.TypeFor[topology.Redistribute]():
		return leaf{parse: simple(topology.ParseRedistribute),
			pattern: `^(deny +)?(static|connected|program|` + protocolsOr() +
				`shortest-path|(program|protocol) +[a-z][a-z0-9-]*)( +[0-9a-fA-F.:]+/[0-9]+)?( +set| +(ge|le|tag|metric) +[0-9]+| +into +[a-z][a-z0-9-]*)*$`}, true
	case reflect.TypeFor[topology.SourceDistance]():
		return leaf{parse: simple(topology.ParseSourceDistance),
			pattern: `^((static|balanced|` + protocolsOr() +
				`shortest-path|program)|(program|protocol) +[a-z][a-z0-9-]*) +[0-9]+$`}, true
	}
	l, ok := leaves[t]
	return l, ok
}

func (l leaf) text(v any) string {
	if l.write != nil {
		return l.write(v)
	}
	return fmt.Sprint(v)
}

// simple turns a function that needs no context into a leaf's parser.
func simple[T any](parse func(string) (T, error)) func(*decoder, string) (any, error) {
	return func(_ *decoder, s string) (any, error) { return parse(s) }
}

// oneOf returns a leaf for a type with only a few values.
func oneOf[T ~string](all ...T) leaf {
	names := make([]string, len(all))
	for i, w := range all {
		names[i] = string(w)
	}
	return leaf{words: names, parse: func(_ *decoder, s string) (any, error) {
		for _, w := range all {
			if s == string(w) {
				return w, nil
			}
		}
		return nil, fmt.Errorf("%q is not one of %s", s, strings.Join(names, ", "))
	}}
}

// datapathNames are those registered so far: see topology.RegisterDatapath.
func datapathNames() []topology.Datapath {
	return lists.Map(topology.Datapaths(), func(k topology.DatapathKind) topology.Datapath { return k.Name })
}

func parseBool(s string) (bool, error) {
	switch s {
	case "true", "yes", "on":
		return true, nil
	case "false", "no", "off":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", s)
}

func parseIndex(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, topology.Mistaken("write 0, 1, 2", "%q is not a number", s)
	}
	return n, nil
}

func parsePort(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 65279 { // 0xff00 and up are reserved (OpenFlow 1.0, OFPP_MAX)
		return 0, topology.Mistaken("write a number, 0 to 65279", "%q is not a port", s)
	}
	return n, nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, topology.Mistaken("write 10.0.0.0/8 or fd00::/64", "%q is not an IP network", s)
	}
	return p, nil
}

func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return a, topology.Mistaken("write 10.0.0.1 or fd00::1", "%q is not an IP address", s)
	}
	return a, nil
}

// interfaceAddress gives an address without a prefix length that of the subnet from which addresses
// are assigned.
func interfaceAddress(d *decoder, s string) (any, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		if a.Is4() {
			return netip.PrefixFrom(a, d.bits4), nil
		}
		return netip.PrefixFrom(a, d.bits6), nil
	}
	p, err := netip.ParsePrefix(s)
	if s == topology.NoAddress {
		return p, topology.Mistaken("write address: none, or leave it out", "%q cannot be one of several addresses", s)
	}
	if err != nil {
		return p, topology.Mistaken("write 10.0.0.1, 10.0.0.1/24 or fd00::1/64", "%q is not an address", s)
	}
	return p, nil
}

func hostAddress(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, topology.Mistaken("write 10.0.0.1 or fd00::1", "%q is not an address", s)
	}
	return p, nil
}

func parseControllerAddress(s string) (string, error) {
	if s == topology.ControllerTrivet {
		return s, nil
	}
	return s, topology.CheckControllerAddress(s)
}

func parseVersion(s string) (string, error) {
	if len(s) == 3 && s[:2] == "1." && s[2] >= '0' && s[2] <= '5' {
		return s, nil
	}
	return "", topology.Mistaken("write 1.0 or 1.3", "%q is not an OpenFlow version", s)
}

// parseMasquerade reads "192.168.1.0/24", "dev r1-eth1", or both.
func parseMasquerade(s string) (m topology.Masquerade, err error) {
	f := strings.Fields(s)
	if len(f) > 0 && f[0] != "dev" {
		if m.From, err = netip.ParsePrefix(f[0]); err == nil {
			m.From = m.From.Masked()
		}
		f = f[1:]
	}
	if len(f) == 2 && f[0] == "dev" {
		m.Device, f = f[1], nil
	}
	if err != nil || len(f) > 0 || m == (topology.Masquerade{}) {
		return m, topology.Mistaken("write 192.168.1.0/24, or dev r1-eth1",
			"%q does not say which packets to masquerade", s)
	}
	return m, nil
}
