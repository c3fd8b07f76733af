package bpf

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
)

func TestLoad(t *testing.T) {
	var o ForwardObjects
	err := LoadForwardObjects(&o, &ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}})
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) {
		l := ve.Log
		if len(l) > 60 {
			l = l[len(l)-60:]
		}
		for _, s := range l {
			fmt.Println(s)
		}
	}
	if err != nil {
		t.Fatalf("%.300s", err)
	}
	fmt.Println(o.Ingress.VerifierLog)
	o.Close()
}
