// Package bearer serves an API on TCP to clients that present its bearer token (RFC 6750), within
// the rights of the token.
package bearer

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"trivet.dev/trivet/internal/accept"
)

// Limits on clients. A client without the token holds a connection until it has sent the head of a
// request, or its time is up, and then until it is refused.
const (
	headTime   = 10 * time.Second // for TLS's handshake, and for the head of a request
	idleTime   = time.Minute      // between requests
	maxHead    = 16 << 10         // bytes of a request's head; net/http adds 4096
	maxClients = 512              // connections with a token, of which those for reading get at most half
	refuseTime = time.Second      // delay before refusing a wrong token, so that few can be tried
)

// Server serves an API on TCP to clients that present a token with each request (RFC 6750, section
// 2.1; not in the URL or the body), by HTTP/1.1. Everybody else gets the same delayed answer to any
// request.
type Server struct {
	Handler http.Handler
	TLS     *tls.Config // nil: plain HTTP, which only this machine's users may be able to reach

	// Hosts are names by which requests may address this machine, besides localhost and its
	// addresses: a page in a browser that makes its own name resolve to this machine (DNS
	// rebinding) uses that name.
	Hosts []string

	// Origins are the origins of web pages whose requests are answered, such as
	// https://lab.example; others are refused.
	Origins []string

	// Refused is called with the address of each client without a token; it may be nil.
	Refused func(from netip.Addr)

	waiting accept.Waiting
	mu      sync.Mutex
	keys    []Key
	inside  map[*client]Key // connections with a token
}

// SetKeys sets the accepted tokens. Connections with other tokens are closed, whatever they carry.
func (s *Server) SetKeys(keys ...Key) {
	s.mu.Lock()
	s.keys = keys
	var out []*client
	for c, k := range s.inside {
		if !slices.Contains(keys, k) {
			out = append(out, c)
		}
	}
	s.mu.Unlock()
	for _, c := range out {
		c.Close()
	}
}

// Serve serves clients until the listener is closed; answers under way then have a second to end.
// Connections that were upgraded to another protocol last until SetKeys ends them.
func (s *Server) Serve(l net.Listener) error {
	server := &http.Server{
		Handler: http.HandlerFunc(s.guard), ReadHeaderTimeout: headTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHead,
		ErrorLog:     log.New(io.Discard, "", 0),                               // strangers must not fill a log
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1 only, as it has upgrades
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, clientKey{}, clientOf(c))
		},
	}
	server.DisableGeneralOptionsHandler = true // it would answer OPTIONS * without a token
	var err error
	l = listener{l, s}
	if s.TLS != nil {
		server.TLSConfig = s.TLS
		err = server.ServeTLS(l, "", "")
	} else {
		err = server.Serve(l)
	}
	if errors.Is(err, net.ErrClosed) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
		return nil
	}
	return err
}

// listener accepts connections of clients that have not presented a token yet.
type listener struct {
	net.Listener
	s *Server
}

func (l listener) Accept() (net.Conn, error) {
	for {
		conn, err := accept.Next(l.Listener, nil)
		if err != nil {
			return nil, err
		}
		if c := (&client{conn, l.s}); l.s.waiting.Enter(c) {
			return c, nil
		}
	}
}

// client is a client's connection.
type client struct {
	net.Conn
	s *Server
}

type clientKey struct{}

// clientOf returns the client of a connection of net/http.
func clientOf(c net.Conn) *client {
	if over, ok := c.(*tls.Conn); ok {
		c = over.NetConn()
	}
	return c.(*client)
}

// Close closes the connection, which no longer counts.
func (c *client) Close() error {
	c.s.waiting.Leave(c)
	c.s.mu.Lock()
	delete(c.s.inside, c)
	c.s.mu.Unlock()
	return c.Conn.Close()
}

// SyscallConn returns that of the socket.
func (c *client) SyscallConn() (syscall.RawConn, error) {
	if own, ok := c.Conn.(syscall.Conn); ok {
		return own.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// enter admits a client that has presented the token of a key. It returns the status with which to
// refuse it: 401 if the key was removed meanwhile, 503 if there are too many clients; 0 if it is
// admitted.
func (s *Server) enter(c *client, k Key) (status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.keys, k) {
		return http.StatusUnauthorized
	}
	if s.inside == nil {
		s.inside = map[*client]Key{}
	}
	all, reading := 0, 0
	for other, by := range s.inside {
		if other == c {
			continue
		}
		if all++; by.Read {
			reading++
		}
	}
	if all >= maxClients || k.Read && reading >= maxClients/2 {
		return http.StatusServiceUnavailable
	}
	s.inside[c] = k
	return 0
}

// key returns the key of the token in a request, in a time that does not depend on the token.
func (s *Server) key(r *http.Request) (key Key, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	have := sha256.Sum256([]byte(given))
	for _, k := range s.keys {
		if subtle.ConstantTimeCompare(have[:], k.Digest[:]) == 1 {
			key, ok = k, strings.EqualFold(scheme, "Bearer") && len(r.Header.Values("Authorization")) == 1
		}
	}
	return key, ok
}

// guard answers a request if that is allowed.
func (s *Server) guard(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	conn := r.Context().Value(clientKey{}).(*client)
	origin := r.Header.Get("Origin")
	listed := origin != "" && slices.Contains(s.Origins, origin)
	if listed {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Add("Vary", "Origin")
	}
	preflight := r.Method == http.MethodOptions && r.ContentLength == 0 &&
		r.Header.Get("Access-Control-Request-Method") != ""
	if listed && preflight && s.ownHost(r.Host) {
		// A browser asks whether it may send the token (Fetch standard, CORS-preflight fetch).
		w.Header().Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE")
		w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	key, ok := s.key(r)
	if !ok {
		s.refuseStranger(w, r, conn)
		return
	}
	switch s.enter(conn, key) {
	case http.StatusUnauthorized:
		s.refuseStranger(w, r, conn)
		return
	case http.StatusServiceUnavailable:
		Refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("there are %d connections to this API already, or %d with a "+
			"token for reading; close some", maxClients, maxClients/2))
		return
	}
	s.waiting.Leave(conn)
	r.Header.Del("Authorization") // handlers and whoever they ask must not see the token
	switch {
	case !s.ownHost(r.Host):
		Refuse(w, http.StatusMisdirectedRequest,
			"the request names another host: use this machine's address, or a name that the API was opened with")
	case origin != "" && !listed:
		Refuse(w, http.StatusForbidden, "pages of "+origin+" are not among the origins that the API was opened with")
	case key.Read && r.Method != http.MethodGet && r.Method != http.MethodHead:
		Refuse(w, http.StatusForbidden, "this token is for reading: GET and HEAD only")
	default:
		s.Handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), keyKey{}, key)))
	}
}

type keyKey struct{}

// Of returns the key of the token that a request has presented; false if it came another way.
func Of(r *http.Request) (Key, bool) {
	k, ok := r.Context().Value(keyKey{}).(Key)
	return k, ok
}

// refuseStranger answers a request without the token.
func (s *Server) refuseStranger(w http.ResponseWriter, r *http.Request, conn *client) {
	if s.Refused != nil {
		s.Refused(from(conn))
	}
	select {
	case <-time.After(refuseTime):
	case <-r.Context().Done():
	}
	// Do not wait for its body.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now())
	w.Header().Set("WWW-Authenticate", "Bearer")
	Refuse(w, http.StatusUnauthorized,
		"the token is missing or wrong; each request needs the header  Authorization: Bearer TOKEN")
}

func from(conn net.Conn) netip.Addr {
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// ownHost reports whether the Host of a request is an address, localhost, or one of the names: a
// page in a browser cannot make these resolve to this machine.
func (s *Server) ownHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	is := func(other string) bool { return strings.EqualFold(name, other) }
	if is("localhost") || slices.ContainsFunc(s.Hosts, is) {
		return true
	}
	_, err = netip.ParseAddr(name)
	return err == nil
}

// Refuse answers a request with a problem (RFC 9457), and closes the connection.
func Refuse(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Connection", "close")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"status": status, "detail": detail})
}
