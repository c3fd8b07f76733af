package e2e

import "testing"

// TestWithoutBPF proves that embedded switches forward where the kernel runs no programs, and that
// this is said: by up, once, which succeeds all the same, and by doctor. A lab whose daemon dies
// there can be resumed, too.
func TestWithoutBPF(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.env = append(m.env, "TRIVET_NO_EBPF=1")
	before := m.snapshot()
	contains(t, m.run("doctor").out, "embedded switches forward in user space")
	contains(t, m.up("linear,3"), "embedded switches forward in user space")
	m.pingAll(6)
	m.killDaemon()
	contains(t, m.ok("resume"), "embedded switches forward in user space")
	m.pingAll(6)
	m.ok("down")
	m.unchanged(before)
}
