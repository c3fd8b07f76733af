package routerd

import (
	"path/filepath"

	"trivet.dev/trivet/topology"
)

var frr = &Family{
	Name: "FRR", Package: "frr", User: "frr", Home: "/etc/frr", Logs: "/var/log/frr",
	Client: "vtysh", ClientArgs: []string{"--vty_socket", "/etc/frr/run", "--config_dir", "/etc/frr"},
	dirs: []string{"/usr/lib/frr", "/usr/libexec/frr", "/usr/sbin", "/usr/bin"}, names: []string{"zebra"},
	programs: frrPrograms,
}

// noNextHopObjects: if zebra 8 keeps next hops in the kernel as objects of their own, it does not
// notice that the kernel drops them together with a link.
const noNextHopObjects = "no zebra nexthop kernel enable"

// frrProgram is one of FRR's daemons, with a file of its own.
func (f *Family) frrProgram(name, config string) Program {
	return Program{Name: name, Ready: name + ".vty", Files: map[string]string{name + ".conf": config},
		Args: []string{"-f", filepath.Join(f.Home, name+".conf"), "-i", f.run(name + ".pid"), "-z", f.run("zserv.api"),
			"--vty_socket", f.run(""), "-A", "127.0.0.1", "-P", "0", "--log", "stdout"}}
}

// frrPrograms returns zebra, which maintains the kernel's routing table, and a daemon for each
// protocol; or the daemons that a router's own configuration needs, if it has one.
func frrPrograms(f *Family, n *topology.Node, spoken Spoken) []Program {
	if n.OwnRouting() != "" {
		return ownFRR(f, n)
	}
	program := func(name, config string) Program {
		p := f.frrProgram(name, config)
		p.Update = func(old, new string) (args []string) {
			for i, c := range updateFRR(old, new) {
				if i == 0 {
					args = []string{"-d", name}
				}
				args = append(args, "-c", c)
			}
			return args
		}
		return p
	}
	head := "hostname " + n.Name + "\nlog timestamp precision 3\n"
	zebra := program("zebra", head+noNextHopObjects+"\n")
	zebra.Files["vtysh.conf"] = "no service integrated-vtysh-config\n"
	out := []Program{zebra}
	for _, s := range spoken {
		if s.Daemon != "" {
			out = append(out, program(s.Daemon, head+s.FRR()))
		}
	}
	return out
}
