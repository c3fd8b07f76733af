package bpf

import (
	"testing"

	"trivet.dev/trivet/test/generated"
)

// What is compiled comes from the sources that are here: both are as they were when
// generated.sha256 was written, which go generate does. This needs no compiler.
func TestGenerated(t *testing.T) { generated.Check(t, ".", "*.c", "*.h", "*.o") }
