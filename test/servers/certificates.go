package servers

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Certificates is a directory: ca.pem has signed server.pem (for 127.0.0.1) and client.pem, whose
// keys are in server.key and client.key; other.pem is of another CA.
type Certificates string

// File is the path of one of them.
func (c Certificates) File(name string) string { return filepath.Join(string(c), name) }

// MakeCertificates makes them.
func MakeCertificates(t testing.TB) Certificates {
	t.Helper()
	c := Certificates(t.TempDir())
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("openssl", args...)
		cmd.Dir = string(c)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("openssl %v: %v: %s", args, err, out)
		}
	}
	for _, ca := range []string{"ca", "other"} {
		run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", ca+".key",
			"-out", ca+".pem", "-subj", "/CN="+ca, "-days", "2")
	}
	if err := os.WriteFile(c.File("ext"),
		[]byte("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"server", "client"} {
		run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", who+".key", "-out",
			who+".csr", "-subj", "/CN="+who)
		run("x509", "-req", "-in", who+".csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out",
			who+".pem", "-days", "2", "-extfile", "ext")
	}
	return c
}
