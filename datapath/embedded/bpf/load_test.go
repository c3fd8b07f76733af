//go:build linux

package bpf

import (
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
)

// The kernel's verifier accepts the programs.
func TestVerifier(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	_ = rlimit.RemoveMemlock()
	var o ForwardObjects
	err := LoadForwardObjects(&o, &ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}})
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		log := refused.Log
		for _, line := range log[max(0, len(log)-40):] {
			t.Log(line)
		}
	}
	if err != nil {
		t.Fatalf("%.300v", err)
	}
	t.Log(o.Ingress.VerifierLog)
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}
