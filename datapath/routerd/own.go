package routerd

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"trivet.dev/trivet/topology"
)

// FRRFile is the file below Home with the configuration of all of FRR's daemons, if that is the
// router's own: vtysh loads it into them.
const FRRFile = "frr.conf"

// frrDaemon is one of FRR's daemons, with its name in FRR's file "daemons".
type frrDaemon struct {
	name   string
	always bool
	needed []string // first words of the lines of a configuration that need it
}

// frrDaemons are in the order in which they are started.
var frrDaemons = []frrDaemon{
	{name: "mgmtd"}, // whenever it is installed, as from FRR 9 on
	{name: "zebra", always: true},
	{name: "staticd", always: true},
	{name: "bgpd", needed: []string{"router bgp", "bgp", "rpki"}},
	{name: "ospfd", needed: []string{"router ospf", "ip ospf"}},
	{name: "ospf6d", needed: []string{"router ospf6", "ipv6 ospf6"}},
	{name: "ripd", needed: []string{"router rip", "ip rip"}},
	{name: "ripngd", needed: []string{"router ripng", "ipv6 ripng"}},
	{name: "isisd", needed: []string{"router isis", "ip router isis", "ipv6 router isis", "isis"}},
	{name: "pimd", needed: []string{"ip pim", "ip igmp", "ip msdp", "router pim"}},
	{name: "pim6d", needed: []string{"ipv6 pim", "ipv6 mld", "router pim6"}},
	{name: "ldpd", needed: []string{"mpls ldp"}},
	{name: "nhrpd", needed: []string{"ip nhrp", "ipv6 nhrp", "nhrp"}},
	{name: "eigrpd", needed: []string{"router eigrp", "ip eigrp"}},
	{name: "babeld", needed: []string{"router babel", "babel"}},
	{name: "pbrd", needed: []string{"pbr-map", "pbr-policy", "nexthop-group"}},
	{name: "bfdd", needed: []string{"bfd"}},
	{name: "fabricd",
		needed: []string{"router openfabric", "ip router openfabric", "ipv6 router openfabric", "openfabric"}},
	{name: "vrrpd", needed: []string{"vrrp"}},
	{name: "pathd", needed: []string{"segment-routing"}},
}

// DaemonsFile is the content of a file like /etc/frr/daemons: which daemons run, and how.
type DaemonsFile struct {
	Runs    map[string]bool
	Profile string              // "": FRR's own choice
	Options map[string][]string // additional arguments, by daemon
}

var (
	assignment = regexp.MustCompile(`^([A-Za-z0-9_]+)=(?:"([^"$` + "`" + `\\]*)"|([^\s"'$` + "`" +
		`\\]*))\s*(?:#.*)?$`)
	moduleName  = regexp.MustCompile(`^[a-z0-9_]+(:[A-Za-z0-9,_.-]+)?$`)
	plainNumber = regexp.MustCompile(`^[0-9]{1,9}$`)
)

// ParseDaemons parses such a file, which FRR has a shell read: only assignments are allowed. wrong
// is called for each line that cannot be accepted.
func ParseDaemons(text string, wrong func(line int, hint, what string)) DaemonsFile {
	d := DaemonsFile{Runs: map[string]bool{}, Options: map[string][]string{}}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		m := assignment.FindStringSubmatch(line)
		if m == nil {
			wrong(i+1, "write bgpd=yes", "not a setting")
			continue
		}
		key, value := m[1], m[2]+m[3]
		daemon, ofOptions := strings.CutSuffix(key, "_options")
		switch {
		case ofOptions && (known(daemon) || ignored(daemon)):
			options, what := optionsOf(strings.Fields(value))
			if what != "" {
				wrong(i+1, "leave it out", what+": this option is not passed to a daemon of a lab")
			}
			d.Options[daemon] = options
		case key == "frr_profile":
			if value != "" && value != "traditional" && value != "datacenter" {
				wrong(i+1, "write traditional or datacenter", value+": there is no such profile")
			}
			d.Profile = value
		case known(key) && (value == "yes" || value == "no"):
			d.Runs[key] = value == "yes"
		case known(key):
			wrong(i+1, "write "+key+"=yes", value+": neither yes nor no")
		case strings.HasSuffix(key, "_instances"):
			wrong(i+1, "leave it out", key+": a daemon runs once in a router")
		case ignored(key): // what watches the daemons and logs for them is the lab's
		default:
			wrong(i+1, "leave it out", key+": FRR has no such daemon or setting")
		}
	}
	return d
}

func known(daemon string) bool {
	return slices.ContainsFunc(frrDaemons, func(d frrDaemon) bool { return d.name == daemon })
}

// ignored says whether a setting has no meaning in a lab.
func ignored(key string) bool {
	return slices.Contains([]string{"vtysh_enable", "watchfrr", "watchfrr_enable", "watchfrr_debug", "all_wrap",
		"sharpd",
		"FRR_NO_ROOT", "MAX_FDS"}, key) || strings.HasSuffix(key, "_wrap")
}

// optionsOf returns the arguments for a daemon that are accepted: modules, and numbers. The lab
// decides where it listens for vtysh.
func optionsOf(words []string) (out []string, refused string) {
	for i := 0; i < len(words); i++ {
		word := words[i]
		next := ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		switch {
		case word == "-A" || word == "--vty_addr" || word == "-P" || word == "--vty_port":
		case word == "-M" || word == "--module":
			if !moduleName.MatchString(next) {
				return out, word + " " + next
			}
			out = append(out, word, next)
		case slices.Contains([]string{"-s", "-e", "-K", "-p", "-I"}, word):
			if !plainNumber.MatchString(next) {
				return out, word + " " + next
			}
			out = append(out, word, next)
		default:
			return out, word
		}
		i++
	}
	return out, ""
}

// daemonsFile returns the content of a router's file of FRR's daemons, which has been checked.
func daemonsFile(n *topology.Node) DaemonsFile {
	return ParseDaemons(n.ConfigOf(topology.ConfigDaemons), func(int, string, string) {})
}

// frrNames returns the daemons that a router with a configuration of its own runs.
func frrNames(f *Family, n *topology.Node) (out []string) {
	runsOf := daemonsFile(n).Runs
	if n.ConfigOf(topology.ConfigDaemons) == "" {
		runsOf = neededBy(n.ConfigOf(topology.ConfigFRR))
	}
	for _, d := range frrDaemons {
		runs := d.always || runsOf[d.name]
		if d.name == "mgmtd" {
			_, err := f.Path(d.name)
			runs = err == nil
		}
		if runs {
			out = append(out, d.name)
		}
	}
	return out
}

// command is the beginning of a command, and the daemon that executes it.
type command struct {
	words  []string
	daemon string
}

// firstWords are the commands that need a daemon, by their first words.
var firstWords = func() map[string][]command {
	out := map[string][]command{}
	for _, d := range frrDaemons {
		for _, start := range d.needed {
			words := strings.Fields(start)
			out[words[0]] = append(out[words[0]], command{words, d.name})
		}
	}
	return out
}()

// neededBy returns the daemons that a configuration of FRR needs.
func neededBy(text string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "no" || strings.ContainsAny(words[0][:1], "!#") {
			continue
		}
		for _, start := range firstWords[words[0]] {
			if len(words) >= len(start.words) && slices.Equal(words[:len(start.words)], start.words) {
				out[start.daemon] = true
			}
		}
		if slices.Contains(words, "bfd") {
			out["bfdd"] = true
		}
	}
	return out
}

// ownFRR returns the daemons of a router with a configuration of its own. They start without one:
// vtysh loads it.
func ownFRR(f *Family, n *topology.Node) (out []Program) {
	file := daemonsFile(n)
	for _, name := range frrNames(f, n) {
		p := f.frrProgram(name, "")
		if name == "zebra" {
			p.Files[FRRFile] = withoutNextHopObjects(n.ConfigOf(topology.ConfigFRR))
			p.Files["vtysh.conf"] = integrated + "\n"
		}
		if name == "bfdd" {
			p.Args = append(p.Args, "--bfdctl", f.run("bfdd.sock"))
		}
		if file.Profile != "" {
			p.Args = append(p.Args, "-F", file.Profile)
		}
		p.Args = append(p.Args, file.Options[name]...)
		if name == "bgpd" && hasLine(n.ConfigOf(topology.ConfigFRR), "rpki") && !slices.Contains(p.Args, "rpki") {
			p.Args = append(p.Args, "-M", "rpki")
		}
		out = append(out, p)
	}
	return out
}

// withoutNextHopObjects appends that setting of zebra to a configuration, unless it contains the
// setting or its opposite.
func withoutNextHopObjects(text string) string {
	if hasLine(text, noNextHopObjects) || hasLine(text, strings.TrimPrefix(noNextHopObjects, "no ")) {
		return text
	}
	return strings.TrimSuffix(strings.TrimRight(text, " \n"), "\nend") + "\n" + noNextHopObjects + "\n"
}

func hasLine(text, line string) bool { return lineOf(text, line) > 0 }

// refusal matches vtysh's message about a line that a daemon refuses: FRR's vtysh_config_from_file.
var refusal = regexp.MustCompile(`line \d+: (?:% )?(Unknown command|Ambiguous command|Failure to communicate|[^:,]*)(?:\[\d+\])?(?: to (\w+))?[:,](?: line:)? *(.*)`)

// Explained returns a better error for loading a router's own configuration, if vtysh's message
// says that its daemons refuse a line.
func Explained(err error, n *topology.Node) error {
	var f *Failure
	if errors.As(err, &f) {
		if why := refused(f.Said, n); why != nil {
			return why
		}
	}
	return err
}

func refused(said string, n *topology.Node) error {
	m := refusal.FindStringSubmatch(said)
	if m == nil {
		return nil
	}
	why := m[1]
	for line := range strings.Lines(said) { // the daemon's own message about it
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "% "); ok {
			why = text
			break
		}
	}
	if m[2] != "" {
		why = m[2] + " refuses it: " + why
	}
	line := strings.TrimSpace(m[3])
	for _, c := range n.Config {
		if c.Kind == topology.ConfigFRR {
			var problems topology.Problems
			problems.Add(c.Position(lineOf(c.Text, line)), "", "%s of %s: %q: %s", c.Kind, n.Name, line, why)
			return problems.Err()
		}
	}
	return nil
}

// lineOf returns the number of the first line with this text; 0 if there is none.
func lineOf(text, line string) int {
	number := 0
	for l := range strings.Lines(text) {
		if number++; strings.TrimSpace(l) == line {
			return number
		}
	}
	return 0
}
