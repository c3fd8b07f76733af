//go:build linux

package cache

import (
	"fmt"
	"os"

	"github.com/cilium/ebpf/rlimit"

	"trivet.dev/trivet/datapath/embedded/bpf"
)

// NoBPF is the environment variable that makes engines behave as if the kernel refused eBPF:
// packets are forwarded in user space.
const NoBPF = "TRIVET_NO_EBPF"

// Probe returns why packets of embedded switches cannot be forwarded in the kernel; nil: they can.
func Probe() error {
	if os.Getenv(NoBPF) != "" {
		return fmt.Errorf("switched off by %s", NoBPF)
	}
	_ = rlimit.RemoveMemlock() // for kernels before 5.11
	var o bpf.ForwardObjects
	if err := bpf.LoadForwardObjects(&o, nil); err != nil {
		return err
	}
	return o.Close()
}
