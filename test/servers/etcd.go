package servers

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Etcd is an etcd of one member.
type Etcd struct {
	process
	URL string
}

// StartEtcd starts an etcd that is asked by a scheme, http or https; args are those that only the
// test needs. The test is skipped where there is none.
func StartEtcd(t testing.TB, scheme string, args ...string) *Etcd {
	t.Helper()
	version, err := exec.Command("etcd", "--version").Output()
	if err != nil || strings.HasPrefix(string(version), "etcd Version: 3.3") { // as Ubuntu 22.04 has it
		t.Skip("there is no etcd 3.4 or later: apt-get install etcd-server")
	}
	at := Free(t)
	e := &Etcd{process: process{t: t, dir: t.TempDir(), listens: at}, URL: scheme + "://" + at}
	e.command = func() *exec.Cmd {
		peer := "http://" + Free(t)
		return exec.Command("etcd",
			append([]string{"--name", "t", "--data-dir", filepath.Join(e.dir, "data"), "--listen-client-urls", e.URL,
				"--advertise-client-urls", e.URL, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
				"--initial-cluster", "t=" + peer, "--logger", "zap", "--log-outputs", "stderr"}, args...)...)
	}
	e.begin()
	return e
}
