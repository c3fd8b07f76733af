package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/accept"
)

// Door is a listener and its access control: on a Unix socket, root and the user who runs the
// controller are admitted; on TCP, on this machine only, clients with the token.
type Door struct {
	Address  string // with which it can be opened again: unix:PATH or tcp:127.0.0.1:PORT
	Token    string // for TCP
	listener net.Listener
}

// Open listens on unix:PATH, or on tcp:127.0.0.1:PORT with the token.
func Open(address, token string) (*Door, error) {
	network, at, _ := strings.Cut(address, ":")
	switch network {
	case "unix":
		l, err := openUnix(at)
		if err != nil {
			return nil, err
		}
		return &Door{Address: address, listener: l}, nil
	case "tcp":
		a, err := netip.ParseAddrPort(at)
		if err != nil || !a.Addr().IsLoopback() {
			return nil, fmt.Errorf("--api %s: the API is for this machine; write tcp:127.0.0.1:PORT (from elsewhere: ssh -L PORT:127.0.0.1:PORT)", address)
		}
		if len(token) < minToken {
			return nil, fmt.Errorf("the API's token has %d characters; it needs at least %d", len(token), minToken)
		}
		l, err := net.Listen("tcp", at)
		if err != nil {
			return nil, err
		}
		return &Door{Address: "tcp:" + l.Addr().String(), Token: token, listener: l}, nil
	}
	return nil, fmt.Errorf("--api %q: write unix:PATH or tcp:127.0.0.1:PORT", address)
}

// openUnix listens on a socket for its owner, replacing one on which nothing listens any more.
func openUnix(path string) (net.Listener, error) {
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("--api unix:%s: something is already listening there", path)
	} else if errors.Is(err, unix.ECONNREFUSED) {
		_ = os.Remove(path)
	}
	mask := unix.Umask(0o177)
	l, err := net.Listen("unix", path)
	unix.Umask(mask)
	if err != nil {
		return nil, err
	}
	return accept.Of(os.Getuid(), l.(*net.UnixListener)), nil
}

// Serve serves requests until the door is closed.
func (s *Server) Serve(d *Door) error {
	handler, listener := s.Handler(), d.listener
	if d.Token != "" {
		handler, listener = guard(handler, d.Token), netutil.LimitListener(listener, maxClients)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 64 << 10}
	err := server.Serve(listener)
	if errors.Is(err, net.ErrClosed) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return server.Shutdown(ctx)
	}
	return err
}

// maxClients limits TCP connections. A client without the token occupies one until its request's
// header has been read or that times out, and is then disconnected.
const maxClients = 512

// Close stops accepting clients.
func (d *Door) Close() error { return d.listener.Close() }

// guard requires the token, and rejects web pages that have made their own name resolve to this
// machine (DNS rebinding): the request's Host must be an address of this machine.
func guard(next http.Handler, token string) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !ownHost(r.Host) {
			refuse(w, http.StatusMisdirectedRequest, "the request names another host: use 127.0.0.1")
			return
		}
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		have := sha256.Sum256([]byte(given))
		if subtle.ConstantTimeCompare(have[:], want[:]) != 1 || !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, http.StatusUnauthorized, "the token is missing or wrong: it is what trivet controller has printed, or in its --token-file")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ownHost reports whether the Host of a request is a loopback address, or localhost.
func ownHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(name)
	return err == nil && a.IsLoopback()
}

func refuse(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Connection", "close")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"status":%d,"detail":%q}`, status, detail)
}

const minToken = 16 // characters

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
	if len(token) < minToken || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("%s holds no token: one word of at least %d characters", file, minToken)
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
	var b [32]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	token = base64.RawURLEncoding.EncodeToString(b[:])
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
