package miniedit

import (
	"cmp"
	"encoding/json"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// reader makes a topology from a file. It keeps the records, in the file's order, next to what was
// made of them.
type reader struct {
	file     string
	problems topology.Problems
	t        *topology.Topology

	version  string
	c0       bool         // version 1 has a controller, to which all switches connect
	base     netip.Prefix // application.ipBase
	openFlow []string     // of Open vSwitch switches; nil: not chosen
	ovs      bool         // application.switchType stands for Open vSwitch

	external []*topology.Link // to real interfaces: Mininet attaches them before it makes links
}

// Read makes a topology from a file saved by MiniEdit.
func Read(file string, data []byte, _ formats.Options) (*topology.Topology, topology.Problems) {
	root, problems := parse(file, data)
	if root == nil {
		return nil, problems
	}
	r := &reader{file: file, problems: problems,
		t: &topology.Topology{Pos: topology.Position{File: file, Line: 1, Column: 1}}}
	top, ok := root.v.(*object)
	if !ok || top.get("hosts") == nil && top.get("switches") == nil && top.get("links") == nil {
		r.bad(root, "a .mn file is an object with hosts, switches and links", "is not a MiniEdit topology")
		return nil, r.problems
	}
	r.known(top, "topology", "application", "controllers", "hosts", "links", "switches", "version")
	r.readVersion(top)
	r.application(r.object(top, "application", "topology"))
	r.controllers(top.get("controllers"))
	r.records(top, "hosts", r.host)
	r.records(top, "switches", r.swtch)
	r.records(top, "links", r.link)
	r.t.Links = append(r.external, r.t.Links...)
	r.oneKind()
	if r.problems.Err() == nil {
		keep(r.t, plain(root).(map[string]any))
	}
	return r.t, r.problems
}

// oneKind removes MiniEdit's own controllers (ref, ovsc) from switches that also have others: a
// learning controller beside them would undo what they decide.
func (r *reader) oneKind() {
	for _, n := range r.t.NodesOf(topology.Switch) {
		others := slices.DeleteFunc(slices.Clone(n.Controllers), r.t.IsBuiltin)
		if len(others) > 0 && len(others) < len(n.Controllers) {
			r.problems.Warn(n.Pos, "", "switch %s: Trivet's controller, which replaces types ref and ovsc, does not share a switch: only %s controls it",
				n.Name, strings.Join(others, ", "))
			n.Controllers = others
		}
	}
}

func (r *reader) readVersion(top *object) {
	r.version, _ = r.text(top, "version", "topology")
	switch v := top.get("version"); {
	case r.version == "1" || r.version == "2":
	case v == nil:
		r.version = "2"
	default:
		r.warn(v, "check the result", "version %s: only versions 1 and 2 are known", kindOf(v))
		r.version = "2"
	}
}

var versionKeys = []struct{ key, version string }{{"ovsOf10", "1.0"}, {"ovsOf11", "1.1"}, {"ovsOf12", "1.2"},
	{"ovsOf13", "1.3"}}

// application reads MiniEdit's preferences.
func (r *reader) application(app *object) {
	r.ovs, r.base = true, netip.MustParsePrefix("10.0.0.0/8")
	if app == nil {
		return
	}
	const subject = "application"
	r.known(app, subject, "dpctl", "ipBase", "netflow", "openFlowVersions", "sflow", "startCLI", "switchType",
		"terminalType")
	if s, v := r.text(app, "ipBase", subject); s != "" {
		if p, err := parseNetwork(s); err != nil {
			r.bad(v, "write 10.0.0.0/8", "%s: ipBase %q is not an IPv4 network", subject, formats.Clip(s))
		} else {
			r.t.Subnet, r.base = p, p
		}
	}
	if s, v := r.text(app, "switchType", subject); s != "" {
		r.ovs = s == typeOVS
		r.otherSwitch(v, "all switches", s)
	}
	if s, v := r.text(app, "dpctl", subject); s != "" {
		r.warn(v, "ask the lab with trivet flows", "%s: dpctl port %s is not opened", subject, formats.Clip(s))
	}
	r.collector(app, "sflow", "sflowTarget", "sflowHeader", "sflowPolling", "sflowSampling")
	r.collector(app, "netflow", "nflowTarget", "nflowAddId", "nflowTimeout")
	r.versions(r.object(app, "openFlowVersions", subject))
	for _, key := range []string{"startCLI", "terminalType"} {
		r.text(app, key, subject)
	}
}

// parseNetwork reads 10.0.0.0/8; without a prefix length, Mininet assumes 24.
func parseNetwork(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		s += "/24"
	}
	p, err := netip.ParsePrefix(strings.TrimSpace(s))
	if err == nil && !p.Addr().Is4() {
		err = strconv.ErrRange
	}
	return p.Masked(), err
}

// versions reads which OpenFlow versions Open vSwitch may speak. MiniEdit's default, 1.0 alone,
// does not mean that anybody chose it: it stands for the datapath's default.
func (r *reader) versions(o *object) {
	if o == nil {
		return
	}
	r.known(o, "openFlowVersions", "ovsOf10", "ovsOf11", "ovsOf12", "ovsOf13")
	for _, k := range versionKeys {
		if s, _ := r.text(o, k.key, "openFlowVersions"); s == "1" {
			r.openFlow = append(r.openFlow, k.version)
		}
	}
	if slices.Equal(r.openFlow, []string{"1.0"}) {
		r.openFlow = nil
	}
}

// collector checks the settings of sFlow or NetFlow, which Trivet does not have.
func (r *reader) collector(app *object, key, target string, others ...string) {
	o := r.object(app, key, "application")
	if o == nil {
		return
	}
	r.known(o, key, append(others, target)...)
	for _, k := range others {
		r.text(o, k, key)
	}
	if s, v := r.text(o, target, key); s != "" {
		r.warn(v, "measure with trivet bench or trivet capture", "%s: nothing is sent to %s", key, formats.Clip(s))
	}
}

// otherSwitch warns about switches that are not Open vSwitch.
func (r *reader) otherSwitch(v *value, subject, kind string) {
	switch kind {
	case typeUser, typeUserNS, typeIVS:
		r.warn(v, "choose one with datapath: embedded, ovs or bridge",
			"%s: Mininet's switch %s is replaced by the datapath of the lab", subject, kind)
	case typeDefault, typeOVS:
	default:
		r.bad(v, "choose one of default, ovs, user, userns, ivs, legacySwitch, legacyRouter",
			"%s: there is no switchType %q", subject, formats.Clip(kind))
	}
}

// controllers reads version 2's list, or version 1's object with the single controller c0.
func (r *reader) controllers(v *value) {
	if v == nil {
		return
	}
	if o, ok := v.v.(*object); ok && r.version == "1" {
		r.known(o, "controllers", "c0")
		if opts := r.object(o, "c0", "controllers"); opts != nil {
			r.controller(o.get("c0"), "c0", opts)
			r.c0 = true
		}
		return
	}
	for _, e := range r.list(v, "controllers") {
		record, ok := e.v.(*object)
		if !ok {
			r.bad(e, `write {"opts": {"hostname": "c0", …}}`, "controllers: %s is not a controller", kindOf(e))
			continue
		}
		r.known(record, "controller", "opts", "x", "y")
		opts := r.object(record, "opts", "controller")
		hostname, _ := r.text(opts, "hostname", "controller")
		if hostname == "" {
			r.bad(e, `write "hostname": "c0" in its opts`, "the controller has no hostname")
			continue
		}
		n := r.controller(e, hostname, opts)
		n.Place = r.place(record, "controller "+hostname)
	}
}

func (r *reader) controller(at *value, hostname string, opts *object) *topology.Node {
	n := r.add(at, topology.Controller, hostname)
	subject := "controller " + hostname
	r.known(opts, subject, "hostname", "controllerType", "controllerProtocol", "remoteIP", "remotePort")
	kind, v := r.text(opts, "controllerType", subject)
	protocol, pv := r.text(opts, "controllerProtocol", subject)
	ip, _ := r.text(opts, "remoteIP", subject)
	port, _ := r.integer(opts, "remotePort", subject, 1, 65535)
	if protocol == "" {
		protocol = "tcp"
	} else if protocol != "tcp" && protocol != "ssl" {
		r.bad(pv, "choose tcp or ssl", "%s: there is no protocol %q", subject, formats.Clip(protocol))
	}
	port = cmp.Or(port, 6633)
	switch kind {
	case typeRemote, typeInband, "":
	case typeRef, typeOVSC:
		n.Address = topology.ControllerTrivet // both learn, and so does Trivet's controller
		return n
	default:
		r.bad(v, "choose one of remote, inband, ref, ovsc", "%s: there is no controllerType %q", subject,
			formats.Clip(kind))
	}
	ip = cmp.Or(ip, "127.0.0.1")
	n.Address = protocol + ":" + net.JoinHostPort(strings.Trim(ip, "[]"), strconv.Itoa(port))
	return n
}

// add appends a node with its position.
func (r *reader) add(at *value, kind topology.Kind, name string) *topology.Node {
	n := r.t.AddNode(kind, name)
	n.Pos = r.pos(at)
	return n
}

// place reads a position on the canvas; MiniEdit saves positions as strings.
func (r *reader) place(record *object, subject string) *topology.Point {
	var p topology.Point
	for _, c := range []struct {
		key  string
		into *float64
	}{{"x", &p.X}, {"y", &p.Y}} {
		s, v := r.text(record, c.key, subject)
		if v == nil {
			return nil
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			r.bad(v, "write a number of pixels", "%s: %s cannot be the %s coordinate", subject, kindOf(v), c.key)
			return nil
		}
		*c.into = f
	}
	return &p
}

// records passes each object of a list to read, with its index.
func (r *reader) records(top *object, key string, read func(int, *value, *object)) {
	v := top.get(key)
	if v == nil {
		return
	}
	for i, e := range r.list(v, key) {
		if record, ok := e.v.(*object); ok {
			read(i, e, record)
		} else {
			r.bad(e, `write {"opts": {…}}`, "%s: %s cannot be in this list", key, kindOf(e))
		}
	}
}

func (r *reader) pos(v *value) topology.Position {
	return topology.Position{File: r.file, Line: v.line, Column: v.column}
}

func (r *reader) bad(v *value, hint, format string, args ...any) {
	r.problems.Add(r.pos(v), hint, format, args...)
}

func (r *reader) warn(v *value, hint, format string, args ...any) {
	r.problems.Warn(r.pos(v), hint, format, args...)
}

// known warns about keys that MiniEdit does not write.
func (r *reader) known(o *object, subject string, keys ...string) {
	if o == nil {
		return
	}
	for _, k := range o.keys {
		if !slices.Contains(keys, k) {
			r.warn(o.members[k], topology.DidYouMean(k, keys), "%s: %q is unknown and has no effect", subject,
				formats.Clip(k))
		}
	}
}

// text returns a string; it also accepts numbers, which hand-edited files have. Absent and null
// give "" and, if null, no value.
func (r *reader) text(o *object, key, subject string) (string, *value) {
	v := o.get(key)
	if v == nil {
		return "", nil
	}
	switch x := v.v.(type) {
	case string:
		return x, v
	case json.Number:
		return x.String(), v
	case nil:
		return "", nil
	}
	r.bad(v, "write a string", "%s: %s is %s, not text", subject, key, kindOf(v))
	return "", nil
}

// number returns a number, which may be written as a string; nil means absent.
func (r *reader) number(o *object, key, subject string, lowest, highest float64) (float64, *value) {
	s, v := r.text(o, key, subject)
	if v == nil || s == "" {
		return 0, nil
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || !(f >= lowest && f <= highest) {
		r.bad(v, "write a number from "+strconv.FormatFloat(lowest, 'f', -1, 64)+" to "+
			strconv.FormatFloat(highest, 'f', -1, 64),
			"%s: %s %s", subject, key, kindOf(v))
		return 0, nil
	}
	return f, v
}

func (r *reader) integer(o *object, key, subject string, lowest, highest int) (int, *value) {
	f, v := r.number(o, key, subject, float64(lowest), float64(highest))
	if v != nil && f != math.Trunc(f) {
		r.bad(v, "write a whole number", "%s: %s %s", subject, key, kindOf(v))
		return 0, nil
	}
	return int(f), v
}

func (r *reader) object(o *object, key, subject string) *object {
	v := o.get(key)
	if v == nil || v.v == nil {
		return nil
	}
	x, ok := v.v.(*object)
	if !ok {
		r.bad(v, "write {…}", "%s: %s is %s, not an object", subject, key, kindOf(v))
	}
	return x
}

func (r *reader) list(v *value, subject string) []*value {
	if v == nil || v.v == nil {
		return nil
	}
	x, ok := v.v.([]*value)
	if !ok {
		r.bad(v, "write […]", "%s: is %s, not a list", subject, kindOf(v))
	}
	return x
}

// texts reads a list of strings.
func (r *reader) texts(o *object, key, subject string) (out []string) {
	for _, e := range r.list(o.get(key), subject+": "+key) {
		if s, ok := e.v.(string); ok && s != "" {
			out = append(out, s)
		} else {
			r.bad(e, "write a name in quotes", "%s: %s: %s is not a name", subject, key, kindOf(e))
		}
	}
	return out
}
