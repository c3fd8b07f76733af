package bearer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func refused(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want an error with %q", err, want)
	}
}

// Proves that a token is read from its file, is created there once, and that a file that others can
// read is refused.
func TestTokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	first, err := MakeToken(file)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := MakeToken(file); err != nil || again != first {
		t.Errorf("made anew: %q, %q, %v", first, again, err)
	}
	if info, _ := os.Stat(file); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	_ = os.Chmod(file, 0o644)
	_, err = MakeToken(file)
	refused(t, err, "others may read it")
	_ = os.Chmod(file, 0o600)
	_ = os.WriteFile(file, []byte("two words that are long\n"), 0o600)
	_, err = MakeToken(file)
	refused(t, err, "holds no token")
	if os.Getuid() != 0 {
		return
	}
	_ = os.WriteFile(file, []byte(first), 0o600)
	_ = os.Chown(file, 65534, -1)
	_, err = MakeToken(file)
	refused(t, err, "belongs to another user")
}
