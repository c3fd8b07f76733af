// Package kathara reads and writes labs of Kathará: a file lab.conf, and in the directory that it
// is in what its devices run and have.
//
//	LAB_NAME="two networks"
//	pc1[0]="A"
//	r1[0]="A"
//	r1[1]="B/02:00:00:00:00:01"
//	r1[image]="kathara/frr"
//
// A device is a host that forwards, with interfaces eth0, eth1, …, without addresses and routes but
// those that its programs set. A collision domain of two devices is a link, any other a switch. A
// device with an image is a container. One without has Kathará's default image, unless all that
// there is for it to do is to configure its network: then it is a host as any other.
//
// A device's start command is what shared.startup, NAME.startup and its exec options say, run by
// bash, after the files of the directory NAME have been copied over its own. lab.dep says which
// containers wait for which, lab.ext which interfaces of the machine are in which domain.
//
// A file that is written holds no more than lab.conf does: commands without quotes are exec
// options, and so are addresses and routes.
package kathara

import (
	"regexp"

	"trivet.dev/trivet/topology/formats"
)

// name is the format's name in commands, and the key in Foreign of what it keeps: the lab's
// description and other options without a meaning, and the names of domains that are links.
const name = "kathara"

// fileName is what Kathará itself reads.
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
