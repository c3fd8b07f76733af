package servers

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Proves that a lab's certificates hold whatever a machine takes for the time, in either direction.
func TestCertificatesHoldAtAnyTime(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, whose the authority's files are")
	}
	dir := t.TempDir()
	a, err := OpenAuthority(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	text, _, err := a.Issue("member")
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	roots, ca := x509.NewCertPool(), filepath.Join(dir, authorityFile)
	if text, err := os.ReadFile(ca); err != nil || !roots.AppendCertsFromPEM(text) {
		t.Fatal(ca, err)
	}
	for _, year := range []int{1971, 2010, time.Now().Year(), 2049, 2050, 2500} {
		at := time.Date(year, 7, 1, 0, 0, 0, 0, time.UTC)
		if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at}); err != nil {
			t.Errorf("in %d: %v", year, err)
		}
	}
}
