package bearer

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// MinToken is the minimum length of a token in characters.
const MinToken = 16

// NewToken returns a token: 256 random bits, as one word.
func NewToken() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // crypto/rand does not fail
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// A Key says what a token allows. The token itself is not kept.
type Key struct {
	Digest [sha256.Size]byte // SHA-256 of the token
	Read   bool              // GET and HEAD only
}

// KeyOf returns the key of a token that allows everything.
func KeyOf(token string) Key { return Key{Digest: sha256.Sum256([]byte(token))} }

// ReadToken returns the token in a file, which nobody else may be able to read.
func ReadToken(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 && int(owner) != os.Getuid() {
		return "", fmt.Errorf("%s belongs to another user (%d), who can read it; use a file of your own", file, owner)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s holds the API's token and others may read it; first:  chmod 600 %s", file, file)
	}
	b := make([]byte, 4096)
	n, _ := f.Read(b)
	token := strings.TrimSpace(string(b[:n]))
	if len(token) < MinToken || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("%s holds no token: one word of at least %d characters", file, MinToken)
	}
	return token, nil
}

// MakeToken returns the token in a file, which it creates if necessary; without a file, a new one.
func MakeToken(file string) (token string, err error) {
	if file != "" {
		if token, err = ReadToken(file); !errors.Is(err, fs.ErrNotExist) {
			return token, err
		}
	}
	token = NewToken()
	if file == "" {
		return token, nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(token + "\n")
	return token, errors.Join(err, f.Close())
}
