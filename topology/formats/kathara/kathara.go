// Package kathara reads and writes labs of Kathará: a file lab.conf, and next to it the scripts and
// files of its devices.
//
//	LAB_NAME="two networks"
//	pc1[0]="A"
//	r1[0]="A"
//	r1[1]="B/02:00:00:00:00:01"
//	r1[image]="kathara/frr"
//
// A device is a host that forwards, with interfaces eth0, eth1, …, and has only the addresses and
// routes that its programs set. A collision domain of two devices becomes a link, any other a
// switch. A device with an image is a container. A device without one gets Kathará's default image,
// unless its commands only configure its network: then it is a host like any other.
//
// A device's start command copies the files of the directory NAME over the device's own, and then
// runs shared.startup, NAME.startup and the exec options in bash. lab.dep says which containers
// wait for which others, lab.ext which interfaces of the machine are in which domain.
//
// Only lab.conf is written: commands without quotes become exec options, and so do addresses and
// routes.
package kathara

import (
	"regexp"

	"trivet.dev/trivet/topology/formats"
)

// name is the format's name in commands, and the key in Foreign of what it keeps: the lab's
// description, other options that mean nothing to Trivet, and the names of domains that became
// links.
const name = "kathara"

// fileName is the name of the only file that Kathará itself reads.
const fileName = "lab.conf"

func init() {
	formats.Register(&formats.Format{
		Name:       name,
		Title:      "Kathará lab.conf",
		Extensions: []string{".conf"},
		Directory:  fileName,
		Detect:     detect,
		Read:       Read,
		Write:      Write,
	})
}

var option = regexp.MustCompile(`(?m)^[a-z0-9_]{1,30}\[\w+\]=`)

func detect(data []byte) bool { return option.Match(data) }
