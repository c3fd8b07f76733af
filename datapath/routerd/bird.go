package routerd

import (
	"fmt"
	"path/filepath"
	"strings"

	"trivet.dev/trivet/topology"
)

var bird = &Family{
	Name: "BIRD", Package: "bird2", User: "bird", Home: "/etc/bird",
	Client: "birdc", ClientArgs: []string{"-s", "/etc/bird/run/bird.ctl"},
	dirs: []string{"/usr/sbin", "/usr/bin", "/usr/local/sbin"}, names: []string{"bird"},
	programs: birdPrograms,
}

func birdPrograms(f *Family, n *topology.Node, spoken Spoken) []Program {
	id := "0.0.0.1" // BIRD needs one, whatever it runs
	var exported []string
	var protocols strings.Builder
	for _, s := range spoken {
		if own := s.RouterID(); own.IsValid() {
			id = own.String()
		}
		sources, text := s.BIRD()
		for _, source := range sources {
			exported = append(exported, "source = "+source)
		}
		protocols.WriteString(text)
	}
	config := fmt.Sprintf("log stderr all;\nhostname %q;\nrouter id %s;\nprotocol device {}\n", n.Name, id)
	if len(exported) > 0 { // BIRD has one for a table of the kernel's
		config += fmt.Sprintf("protocol kernel { ipv4 { export where %s; }; }\n", strings.Join(exported, " || "))
	}
	config += protocols.String()
	if own := n.ConfigOf(topology.ConfigBIRD); own != "" {
		config = own
	}
	return []Program{{Name: "bird", Ready: "bird.ctl", Reload: true, Files: map[string]string{"bird.conf": config},
		Args: []string{"-f", "-u", f.User, "-g", f.User, "-c", filepath.Join(f.Home, "bird.conf"), "-s",
			f.run("bird.ctl"), "-P", f.run("bird.pid")}}}
}
