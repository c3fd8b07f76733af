package local

import (
	"errors"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath/embedded/cache"
	"trivet.dev/trivet/internal/cgroup"
)

// Finding is the result of one check of the machine.
type Finding struct {
	What    string `json:"what"`
	OK      bool   `json:"ok"`
	Unknown bool   `json:"unknown,omitempty"` // not checked: OK means nothing
	Needed  bool   `json:"needed"`            // without it no lab comes up
	Warns   bool   `json:"warns,omitempty"`   // without it labs are slower, or less accurate
	Says    string `json:"says"`
	Cure    string `json:"cure,omitempty"`
}

// Examine checks whether this machine has what labs need. Without root it can check only some of
// that.
func Examine() []Finding {
	return []Finding{examineNamespaces(), examineCgroups(), examineNetem(), examineTun(), examineBPF()}
}

func examineNamespaces() Finding {
	f := Finding{What: "namespaces", Needed: true, OK: true, Says: "network, UTS and mount namespaces can be made"}
	if os.Geteuid() != 0 {
		f.Unknown, f.Says = true, "not tried (needs root)"
		return f
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		result <- unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWNS)
	}()
	if err := <-result; err != nil {
		f.OK, f.Says = false, "cannot be made: "+err.Error()
		f.Cure = "in a container, start it with --privileged; else raise the sysctls user.max_*_namespaces"
	}
	return f
}

func examineCgroups() Finding {
	f := Finding{What: "cgroups", Needed: true}
	c, err := cgroup.Find()
	if err != nil {
		f.Says, f.Cure = err.Error(), "mount -t cgroup2 none /sys/fs/cgroup"
		return f
	}
	f.OK = true
	f.Says = "version 2 at " + c.V2
	if c.V2 == "" {
		f.Says = "version 1"
	} else if c.CPU != "" {
		f.Says += ", CPU limits by version 1 at " + c.CPU
	} else if !c.V2Has("cpu") {
		f.Says += ", no CPU limits"
	}
	return f
}

func examineNetem() Finding {
	f := Finding{What: "netem", OK: true, Says: "the kernel can delay, jitter and drop packets"}
	if os.Geteuid() != 0 {
		f.Unknown, f.Says = true, "not tried (needs root)"
		return f
	}
	if !hasNetem() {
		f.OK = false
		f.Says = "missing: links with delay, jitter or loss go through Trivet's delay line in user space: about 1 Gbit/s a link, and more CPU time"
		f.Cure = "modprobe sch_netem (Debian: in the kernel's own package; not in cloud images)"
	}
	return f
}

func examineTun() Finding {
	f := Finding{What: "tun", OK: true, Says: "TAP devices can be made"}
	file, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err == nil {
		file.Close()
		return f
	}
	if errors.Is(err, os.ErrPermission) && os.Geteuid() != 0 {
		f.Unknown, f.Says = true, "not tried (needs root)"
		return f
	}
	return Finding{What: "tun", Says: "missing: " + err.Error(), Cure: "modprobe tun"}
}

func examineBPF() Finding {
	f := Finding{What: "eBPF", OK: true, Says: "embedded switches forward in the kernel"}
	if os.Geteuid() != 0 {
		f.Unknown, f.Says = true, "not tried (needs root)"
		return f
	}
	if err := cache.Probe(); err != nil {
		f.OK = false
		f.Says = "refused: embedded switches forward in user space, far slower (" +
			strings.Split(err.Error(), "\n")[0] + ")"
		f.Cure = "in a container, start it with --privileged; the kernel must be 5.17 or later"
	}
	return f
}
