package ovs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

func init() {
	datapath.RegisterConfig(datapath.Config{Kind: "ovs", Check: checkConfig, Read: readConfig, Load: loadConfig})
}

// settable lists the columns that a configuration may set: those that concern a single switch and
// that Trivet does not set from the topology.
var settable = map[string][]string{
	"bridge":    {"mcast_snooping_enable", "flood_vlans", "other_config"},
	"port":      {"tag", "trunks", "vlan_mode", "cvlans", "protected", "other_config"},
	"interface": {"ingress_policing_rate", "ingress_policing_burst"},
}

var settableTables = []string{"bridge", "port", "interface"}

// setting is a value for a column of a record, or for one of its keys, in the syntax of ovs-vsctl.
type setting struct {
	table, record, column, key, value string
}

func (s setting) name() string {
	if s.key == "" {
		return s.column
	}
	return s.column + ":" + s.key
}

func (s setting) String() string {
	return fmt.Sprintf("set %s %s %s=%s", s.table, s.record, s.name(), s.value)
}

var (
	settingWord = regexp.MustCompile(`^([a-z_]+)(?::([a-z0-9-]+))?=(.+)$`)
	plainValue  = regexp.MustCompile(`^(?:[A-Za-z0-9_.:/-]+|"[A-Za-z0-9_.:/ -]*"|\[[0-9, ]*\])$`)
)

// settingsOf reads the lines "set TABLE RECORD COLUMN=VALUE..." of a text.
func settingsOf(text string, problem func(line int, hint, what string)) (out []setting) {
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		bad := func(hint, format string, args ...any) { problem(i+1, hint, fmt.Sprintf(format, args...)) }
		words := strings.Fields(line)
		if len(words) < 4 || words[0] != "set" {
			bad("write set port s1-eth1 tag=10", "not a setting")
			continue
		}
		table := strings.ToLower(words[1])
		if settable[table] == nil {
			bad("there are "+strings.Join(settableTables, ", "), "%s: no such table", words[1])
			continue
		}
		for _, word := range words[3:] {
			m := settingWord.FindStringSubmatch(word)
			switch {
			case m == nil:
				bad("write tag=10, or other_config:stp-path-cost=10", "%s: not a column and its value", word)
			case !slices.Contains(settable[table], m[1]):
				bad("there are "+strings.Join(settable[table], ", "), "%s: this column of a %s is not set here", m[1],
					table)
			case (m[1] == "other_config") != (m[2] != ""):
				bad("write other_config:KEY=VALUE, and other columns without a key", "%s: cannot be set like this",
					word)
			case table == "bridge" && slices.Contains(ourConfig, m[2]):
				bad("leave it out", "%s: the topology says this", word)
			case !plainValue.MatchString(m[3]):
				bad("write a word, or [10,20]", "%s: not a value", word)
			default:
				out = append(out, setting{table, words[2], m[1], m[2], m[3]})
			}
		}
	}
	return out
}

// ofVLANs are the columns that the topology sets at ports for which it defines VLANs: see vlans.
var ofVLANs = []string{"tag", "trunks", "vlan_mode"}

// records returns the names of a switch's records, and the ports whose VLANs the topology defines.
func records(t *topology.Topology, n *topology.Node) (bridge string, ports []string, apart map[string]bool) {
	vlans := topology.VLANPorts(t)
	apart = map[string]bool{}
	for _, l := range t.Links {
		for i, e := range l.Ends {
			if e.Node != n.Name {
				continue
			}
			name := e.Interface
			if far := l.Ends[1-i]; far.External() && far.Carrier == nil {
				name = far.Interface
			}
			ports = append(ports, name)
			apart[name] = vlans[l][i] != topology.PortVLANs{}
		}
	}
	return topology.DeviceName(n.Name), ports, apart
}

func checkConfig(t *topology.Topology, n *topology.Node, c topology.ConfigFile) (problems topology.Problems) {
	bridge, ports, apart := records(t, n)
	bad := func(line int, hint, what string) { problems.Add(c.Position(line), hint, "ovs of %s: %s", n.Name, what) }
	settingsOf(c.Text, bad)
	for i, line := range strings.Split(c.Text, "\n") {
		for _, s := range settingsOf(line, func(int, string, string) {}) {
			if s.table == "bridge" && s.record != bridge || s.table != "bridge" && !slices.Contains(ports, s.record) {
				bad(i+1, "its bridge is "+bridge+", its ports are "+strings.Join(ports[:min(len(ports), 10)], ", "),
					fmt.Sprintf("%s %s is none of this switch", s.table, s.record))
				break
			}
			if apart[s.record] && slices.Contains(ofVLANs, s.column) {
				bad(i+1, "leave it out, or leave vlan and trunk out of all of the switch's links",
					s.record+"'s VLANs are said by the topology")
				break
			}
		}
	}
	return problems
}

// Recorded is a fabric with an Open vSwitch, on whatever machine.
type Recorded interface {
	// Vsctl runs commands of ovs-vsctl in one transaction.
	Vsctl(ctx context.Context, commands ...[]string) (string, error)
	// RecordsOf returns the names of a switch's records: of its bridge, "" if there is none, and of
	// its ports.
	RecordsOf(*topology.Node) (bridge string, ports []RecordedPort)
}

// RecordedPort is a port of a switch.
type RecordedPort struct {
	Name   string // in configurations
	Record string // in Open vSwitch

	// Blocked says that it must not forward by learning: VLANs set for it are stored until it may.
	Blocked bool
	// Apart says that the topology defines its VLANs.
	Apart bool
}

// Vsctl runs commands of ovs-vsctl in one transaction.
func (f *fabric) Vsctl(ctx context.Context, commands ...[]string) (string, error) {
	return f.switches.Load().vsctl(ctx, commands...)
}

// RecordsOf returns the names of a switch's records.
func (f *fabric) RecordsOf(n *topology.Node) (bridge string, ports []RecordedPort) {
	if f.switches.Load() == nil {
		return "", nil
	}
	bridge, names, apart := records(f.site.Topology(), n)
	isBlocked := f.blockedPorts()
	for _, p := range names {
		ports = append(ports, RecordedPort{p, p, isBlocked[p], apart[p]})
	}
	return bridge, ports
}

// vsctl runs commands of ovs-vsctl in one transaction.
func (s *Switches) vsctl(ctx context.Context, commands ...[]string) (string, error) {
	program := findProgram("ovs-vsctl")
	if program == "" {
		return "", errors.New("ovs-vsctl: not found; " + installHint)
	}
	args := []string{"-vsyslog:off", "--timeout=30", "--db=unix:" + filepath.Join(s.dir, "db.sock")}
	for _, c := range commands {
		args = append(append(args, "--"), c...)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ovs-vsctl: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return string(out), nil
}

// unset lists how ovs-vsctl writes default values.
var unset = []string{"[]", "{}", "0", "false", `""`}

// configOf returns the current settings of a switch's records.
func configOf(ctx context.Context, f Recorded, bridge string, ports []RecordedPort) (out []setting, err error) {
	there, err := f.Vsctl(ctx, []string{"list-ifaces", bridge})
	if err != nil {
		return nil, err
	}
	names := strings.Fields(there)
	var asked []setting
	ask := func(table, record string, columns []string) {
		for _, c := range columns {
			asked = append(asked, setting{table: table, record: record, column: c})
		}
	}
	ask("bridge", bridge, settable["bridge"])
	for _, p := range ports {
		if slices.Contains(names, p.Record) {
			columns := append(slices.Clone(settable["port"]), "external_ids")
			if p.Apart {
				columns = slices.DeleteFunc(columns,
					func(c string) bool { return slices.Contains(ofVLANs, c) || c == "external_ids" })
			}
			ask("port", p.Name, columns)
			ask("interface", p.Name, settable["interface"])
		}
	}
	record := recordOf(ports)
	var commands [][]string
	for _, a := range asked {
		commands = append(commands, []string{"--if-exists", "get", a.table, record(a), a.column})
	}
	text, err := f.Vsctl(ctx, commands...)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(text, "\n")
	if len(lines) <= len(asked)-1 {
		return nil, fmt.Errorf("ovs-vsctl answers %d of %d questions", len(lines), len(asked))
	}
	isBlocked, kept := map[string]bool{}, map[string]vlans{}
	for i, a := range asked {
		value := strings.TrimSpace(lines[i])
		switch {
		case a.column == "trunks" && value == fmt.Sprintf("[%d]", noVLAN):
			isBlocked[a.record] = true
			continue
		case a.column == "external_ids":
			for _, x := range mapOf(a, value) {
				if x.key == keptVLANs {
					var text string
					var v vlans
					if json.Unmarshal([]byte(x.value), &text) == nil && json.Unmarshal([]byte(text), &v) == nil {
						kept[a.record] = v
					}
				}
			}
			continue
		case slices.Contains(unset, value), value == "":
			continue
		}
		if a.column == "other_config" {
			for _, x := range mapOf(a, value) {
				if a.table != "bridge" || !slices.Contains(ourConfig, x.key) {
					out = append(out, x)
				}
			}
			continue
		}
		a.value = strings.ReplaceAll(value, " ", "")
		out = append(out, a)
	}
	out = slices.DeleteFunc(out, func(x setting) bool { return isBlocked[x.record] && x.column == "vlan_mode" })
	for port, v := range kept {
		if v.Mode != nil {
			out = append(out, setting{table: "port", record: port, column: "vlan_mode", value: *v.Mode})
		}
		if len(v.Trunks) > 0 {
			text, _ := json.Marshal(v.Trunks)
			out = append(out, setting{table: "port", record: port, column: "trunks", value: string(text)})
		}
	}
	slices.SortFunc(out, func(a, b setting) int {
		return strings.Compare(fmt.Sprint(slices.Index(settableTables, a.table), a),
			fmt.Sprint(slices.Index(settableTables, b.table), b))
	})
	return out, nil
}

// recordOf returns a function that returns Open vSwitch's name of the record that a setting is for.
func recordOf(ports []RecordedPort) func(setting) string {
	names := map[string]string{}
	for _, p := range ports {
		names[p.Name] = p.Record
	}
	return func(s setting) string {
		if s.table == "bridge" || names[s.record] == "" {
			return s.record
		}
		return names[s.record]
	}
}

var mapPair = regexp.MustCompile(`"?([A-Za-z0-9_.:-]+)"?=("(?:[^"\\]|\\.)*"|[^,}\s]+)`)

// mapOf returns the keys of a column that is a map.
func mapOf(of setting, value string) (out []setting) {
	for _, m := range mapPair.FindAllStringSubmatch(value, -1) {
		one := of
		one.key, one.value = m[1], m[2]
		out = append(out, one)
	}
	return out
}

func readConfig(ctx context.Context, in datapath.Running, was string) (string, error) {
	f, ok := in.Fabric.(Recorded)
	if !ok {
		return "", nil
	}
	bridge, ports := f.RecordsOf(in.Node)
	if bridge == "" {
		return "", nil
	}
	have, err := configOf(ctx, f, bridge, ports)
	if err != nil {
		return "", err
	}
	lines := lists.Map(have, setting.String)
	var before []string
	for _, s := range settingsOf(was, func(int, string, string) {}) {
		before = append(before, normal(s).String())
	}
	if slices.Equal(slices.Sorted(slices.Values(lines)), slices.Sorted(slices.Values(before))) {
		return was, nil
	}
	return strings.Join(lines, "\n") + strings.Repeat("\n", min(len(lines), 1)), nil
}

// normal returns a setting as ovs-vsctl writes it.
func normal(s setting) setting {
	s.value = strings.ReplaceAll(s.value, " ", "")
	if s.key != "" && !strings.HasPrefix(s.value, `"`) {
		s.value = `"` + s.value + `"`
	}
	if (s.column == "trunks" || s.column == "cvlans" || s.column == "flood_vlans") && !strings.HasPrefix(s.value, "[") {
		s.value = "[" + s.value + "]"
	}
	return s
}

func loadConfig(ctx context.Context, in datapath.Running, was, text string) error {
	f, ok := in.Fabric.(Recorded)
	if !ok {
		return nil
	}
	bridge, ports := f.RecordsOf(in.Node)
	if bridge == "" {
		return nil
	}
	want, record := settingsOf(text, func(int, string, string) {}), recordOf(ports)
	isBlocked, apart := map[string]bool{}, map[string]bool{}
	for _, p := range ports {
		isBlocked[p.Name], apart[p.Name] = p.Blocked, p.Apart
	}
	var commands [][]string
	for _, old := range settingsOf(was, func(int, string, string) {}) {
		switch {
		case apart[old.record] && slices.Contains(ofVLANs, old.column): // the topology has set them
		case isBlocked[old.record] && (old.column == "vlan_mode" || old.column == "trunks"):
			commands = append(commands, []string{"--if-exists", "remove", "port", record(old), "external_ids",
				keptVLANs})
		case slices.ContainsFunc(want,
			func(w setting) bool { return w.table == old.table && w.record == old.record && w.name() == old.name() }):
		case old.key != "":
			commands = append(commands, []string{"--if-exists", "remove", old.table, record(old), old.column, old.key})
		case strings.HasPrefix(old.column, "ingress_"):
			commands = append(commands, []string{"set", old.table, record(old), old.column + "=0"})
		case old.column == "protected" || old.column == "mcast_snooping_enable":
			commands = append(commands, []string{"set", old.table, record(old), old.column + "=false"})
		default:
			commands = append(commands, []string{"--if-exists", "clear", old.table, record(old), old.column})
		}
	}
	kept := map[string]vlans{}
	for _, w := range want {
		if v := kept[w.record]; isBlocked[w.record] && v.keep(w) {
			kept[w.record] = v
			continue
		}
		commands = append(commands, []string{"set", w.table, record(w), w.name() + "=" + w.value})
	}
	for port, v := range kept {
		text, _ := json.Marshal(v)
		quoted, _ := json.Marshal(string(text))
		commands = append(commands,
			[]string{"set", "port", record(setting{table: "port", record: port}),
				"external_ids:" + keptVLANs + "=" + string(quoted)})
	}
	if len(commands) == 0 {
		return nil
	}
	_, err := f.Vsctl(ctx, commands...)
	return err
}

// blockedPorts returns the ports that do not take part in learning: VLANs set for them are stored
// until they do.
func (f *fabric) blockedPorts() map[string]bool {
	out := map[string]bool{}
	for _, b := range f.bridges(topology.Blocked(f.site.Topology())) {
		for _, p := range b.Ports {
			out[p.Name] = p.Blocked
		}
	}
	return out
}

// keep records a setting for when a blocked port is unblocked; false: the port is not blocked.
func (v *vlans) keep(s setting) bool {
	switch s.column {
	case "vlan_mode":
		mode := strings.Trim(s.value, `"`)
		v.Mode = &mode
	case "trunks":
		return json.Unmarshal([]byte(normal(s).value), &v.Trunks) == nil
	default:
		return false
	}
	return true
}
