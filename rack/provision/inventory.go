// Package provision prepares a rack's devices for labs: it runs the collection trivet.rack, which
// is built into the program, with the user's Ansible.
package provision

import (
	"encoding/json"
	"maps"
	"regexp"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// vars are variables of Ansible.
type vars = map[string]any

// notInGroups matches characters that are not allowed in names of Ansible's groups.
var notInGroups = regexp.MustCompile(`[^A-Za-z0-9_]`)

// fromMemory reads a device's password from a file that the playbook inherits, which exists in
// memory only.
const fromMemory = "{{ (lookup('ansible.builtin.file', '/proc/self/fd/3') | from_json)[inventory_hostname] }}"

// inventory returns the Ansible inventory of a rack. The collection's own inventory plugin derives
// the same from the same file, for users who run the collection without Trivet.
func (r *Run) inventory() ([]byte, error) {
	groups := map[string]vars{"gateway": {}, "devices": {}, site.LabelUnmanaged: {}}
	put := func(name string, labels []string, v vars) {
		for _, g := range labels {
			g = notInGroups.ReplaceAllString(g, "_")
			if groups[g] == nil {
				groups[g] = vars{}
			}
			groups[g][name] = v
		}
	}
	head := vars{"ansible_connection": "local", "trivet_inner": r.Rack.Head.NIC}
	set(head, "trivet_outer", r.Rack.Head.Outer)
	put(topology.Head, append([]string{"gateway"}, r.Rack.Head.Labels...), head)
	var p topology.Problems
	for _, m := range r.Rack.Machines {
		v, err := r.device(m)
		if err != nil {
			return nil, err
		}
		for name, value := range v {
			if s, ok := value.(string); ok && s != fromMemory && strings.ContainsAny(s, "{}%") {
				p.Add(m.Pos, "call the file something else", "%s: Ansible would take %s for a template: %q", m.Name,
					name, s)
			}
		}
		groups := append([]string{"devices"}, m.Labels...)
		if m.Unmanaged() {
			groups = append(groups, site.LabelUnmanaged)
		}
		if m.Configured() {
			groups = append(groups, m.Kind)
		}
		put(m.Name, groups, v)
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	children := vars{}
	for name, hosts := range groups {
		children[name] = vars{"hosts": hosts}
	}
	all := vars{"children": children, "vars": vars{"ansible_python_interpreter": "auto_silent",
		"trivet_programs": programs()}}
	return json.MarshalIndent(vars{"all": all}, "", "  ")
}

// device returns the variables of one device.
func (r *Run) device(m *site.Machine) (vars, error) {
	v := vars{"ansible_host": m.Host}
	set(v, "ansible_user", m.User)
	if m.Port != 0 {
		v["ansible_port"] = m.Port
	}
	set(v, "trivet_nic", m.NIC)
	if m.Address.IsValid() {
		v["trivet_address"] = m.Address.String()
	}
	options, err := r.User.SSHOptions(m)
	if err != nil {
		return nil, err
	}
	quoted := lists.Map(options, quote)
	v["ansible_ssh_common_args"] = strings.Join(quoted, " ")
	if r.Passwords[m.Name] != "" {
		v["ansible_password"], v["ansible_become_password"] = fromMemory, fromMemory
	}
	maps.Copy(v, r.Variables[m.Name])
	return v, nil
}

func set(v vars, name, value string) {
	if value != "" {
		v[name] = value
	}
}

// harmless matches words that a POSIX shell does not change.
var harmless = regexp.MustCompile(`^[A-Za-z0-9_./:=@%+-]+$`)

// quote quotes s for a POSIX shell. Ansible removes quotes around a whole variable, so a list of
// words must not begin with one.
func quote(s string) string {
	if harmless.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// programs returns this program's file for each supported kind of machine.
func programs() map[string]string {
	out := map[string]string{}
	for _, machine := range []string{"x86_64", "aarch64", "armv7l", "armv6l"} {
		if file, err := site.ProgramFor(machine); err == nil {
			out[machine] = file
		}
	}
	return out
}
