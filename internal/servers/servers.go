// Package servers runs the servers of a lab's cluster of controllers, an etcd and a RabbitMQ of the
// lab's own: as ordinary users, on the loopback device, with certificates and passwords made for
// this lab.
package servers

import (
	"os/exec"
	"path/filepath"
	"strings"

	"trivet.dev/trivet/internal/lack"
)

// Program is a server that a lab can run.
type Program struct {
	Name    string // also that of the package's user
	Package string // of Debian and Ubuntu
	For     string // what it is for
	paths   []string
}

// Etcd and RabbitMQ are the programs of a cluster.
var (
	Etcd     = &Program{"etcd", "etcd-server", "keeps what the controllers of a cluster share", []string{"etcd"}}
	RabbitMQ = &Program{"rabbitmq", "rabbitmq-server", "carries what the controllers of a cluster report",
		[]string{"/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server"}}
)

// All are the programs.
func All() []*Program { return []*Program{Etcd, RabbitMQ} }

// Find returns where the program is.
func (p *Program) Find() (string, error) {
	for _, path := range p.paths {
		if found, err := exec.LookPath(path); err == nil {
			return filepath.Abs(found)
		}
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/usr/local/bin"} { // not in everybody's PATH
		if found, err := exec.LookPath(filepath.Join(dir, filepath.Base(p.paths[0]))); err == nil {
			return found, nil
		}
	}
	return "", lack.New(p.Package+", which "+p.For+", is not installed", ":  ", "sudo apt install "+p.Package)
}

// Missing says which of some programs this machine lacks.
func Missing(programs ...*Program) error {
	var packages []string
	var why []string
	for _, p := range programs {
		if _, err := p.Find(); err != nil {
			packages, why = append(packages, p.Package), append(why, p.Package+" ("+p.For+")")
		}
	}
	if len(packages) == 0 {
		return nil
	}
	return lack.New("a cluster of controllers needs "+strings.Join(why, " and "), ":  ",
		"sudo apt install "+strings.Join(packages, " ")+
			"   (or name a store and a broker that exist elsewhere, docs/cluster.md)")
}
