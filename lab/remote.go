package lab

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trivet.dev/trivet/internal/bearer"
	"trivet.dev/trivet/internal/servers"
	"trivet.dev/trivet/internal/words"
)

// A lab's API is on TCP only if somebody has asked for that. Whoever presents the token may then do
// what the lab's owner may do over the lab's socket, except for remoteNever and remoteWrites.

// RemoteRequest asks for a lab's API to be on TCP as well.
type RemoteRequest struct {
	Listen      string   `json:"listen" doc:"IP address and port; port 0: one that is free"`
	TLS         bool     `json:"tls,omitempty" doc:"Also at an address of this machine's own, where plain HTTP is allowed"`
	Certificate string   `json:"certificate,omitempty" doc:"In PEM, with those that it needs; none: one is made"`
	Key         string   `json:"key,omitempty" doc:"Its private key, in PEM"`
	Hosts       []string `json:"hosts,omitempty" doc:"Names by which requests may call this machine, besides its addresses"`
	Origins     []string `json:"origins,omitempty" doc:"Of pages whose requests are answered: https://lab.example"`
	ReadOnly    bool     `json:"read_only,omitempty" doc:"Also make a token for reading"`
}

// Remote says where a lab's API is on TCP.
type Remote struct {
	URL           string   `json:"url,omitempty" doc:"None: it is not on TCP"`
	TokenFile     string   `json:"token_file,omitempty" doc:"The token, for the lab's owner and root to read"`
	ReadTokenFile string   `json:"read_token_file,omitempty" doc:"The token for reading"`
	Certificate   string   `json:"certificate_file,omitempty" doc:"In PEM"`
	Fingerprint   string   `json:"fingerprint,omitempty" doc:"SHA-256 of the certificate, in hexadecimal"`
	Hosts         []string `json:"hosts,omitempty"`
	Origins       []string `json:"origins,omitempty"`
}

// TokenRequest asks for another token in place of one.
type TokenRequest struct {
	ReadOnly bool `json:"read_only,omitempty" doc:"That for reading"`
	Remove   bool `json:"remove,omitempty" doc:"None in its place; only of that for reading"`
}

// remote is a lab's API on TCP.
type remote struct {
	mu       sync.Mutex
	record   *remoteRecord // nil: it is not on TCP
	server   *bearer.Server
	listener net.Listener
	ended    chan struct{} // closed when all its requests are answered

	closed bool // the lab goes down: nothing is written any more

	strangers strangers
}

// strangers are clients without a token.
type strangers struct {
	mu    sync.Mutex
	count int       // refused since the log last mentioned some
	told  time.Time // when the log last mentioned some
}

// remoteRecord is what the next daemon needs to serve the API again. Only root can read it, and it
// has hashes in place of tokens.
type remoteRecord struct {
	Listen      string   `json:"listen"`
	Certificate string   `json:"certificate,omitempty"`
	Key         string   `json:"key,omitempty"`
	Hosts       []string `json:"hosts,omitempty"`
	Origins     []string `json:"origins,omitempty"`
	Token       string   `json:"token"` // SHA-256, in hexadecimal
	ReadToken   string   `json:"read_token,omitempty"`
}

// Files of a lab's API on TCP, in the lab's directory.
func remoteFile(name string) string      { return filepath.Join(Dir(name), "remote.json") }
func tokenFile(name string) string       { return filepath.Join(Dir(name), "token") }
func readTokenFile(name string) string   { return filepath.Join(Dir(name), "token.read-only") }
func certificateFile(name string) string { return filepath.Join(Dir(name), "remote.pem") }

const remotePath = "/v1/remote"

func registerRemote(api huma.API, d *daemon) {
	answer := func(err error) (*body[Remote], error) {
		d.remote.mu.Lock()
		defer d.remote.mu.Unlock()
		return &body[Remote]{d.remote.says(d.state().Name)}, problem(err)
	}
	huma.Get(api, remotePath, func(context.Context, *struct{}) (*body[Remote], error) { return answer(nil) },
		summary("Where this API is on TCP"))
	huma.Put(api, remotePath, func(_ context.Context, in *body[RemoteRequest]) (*body[Remote], error) {
		return answer(d.openRemote(in.Body))
	}, summary("Have this API on TCP, for who shows a token that is made"))
	huma.Delete(api, remotePath, func(context.Context, *struct{}) (*body[Remote], error) {
		return answer(d.closeRemote())
	}, summary("End this API on TCP, with all that goes on over it; its tokens are gone"))
	huma.Post(api, remotePath+"/token", func(_ context.Context, in *body[TokenRequest]) (*body[Remote], error) {
		return answer(d.changeToken(in.Body))
	}, summary("Make another token; the old one, and what goes on by it, ends at once"))
}

// says returns its description. The caller has locked r.
func (r *remote) says(name string) (out Remote) {
	record := r.record
	if record == nil {
		return out
	}
	out = Remote{URL: "http://" + record.reachable(), TokenFile: tokenFile(name), Hosts: record.Hosts,
		Origins: record.Origins}
	if record.ReadToken != "" {
		out.ReadTokenFile = readTokenFile(name)
	}
	if block, _ := pem.Decode([]byte(record.Certificate)); block != nil {
		sum := sha256.Sum256(block.Bytes)
		out.URL, out.Certificate = "https://"+record.reachable(), certificateFile(name)
		out.Fingerprint = hex.EncodeToString(sum[:])
	}
	return out
}

// reachable is the address to give to clients. If the API listens at all addresses of this machine,
// it is the last of its names, or else the last of the machine's own names and addresses.
func (r *remoteRecord) reachable() string {
	at, err := netip.ParseAddrPort(r.Listen)
	if err != nil || !at.Addr().IsUnspecified() {
		return r.Listen
	}
	names := r.Hosts
	if len(names) == 0 {
		names = slices.DeleteFunc(ownNames(at.Addr()), func(name string) bool {
			return at.Addr().Is4() && strings.Contains(name, ":")
		})
	}
	return net.JoinHostPort(names[len(names)-1], fmt.Sprint(at.Port()))
}

// hostPattern matches host names (RFC 1123, section 2.1).
var hostPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)

// check says why a request cannot be granted, and returns the address to listen at.
func (r RemoteRequest) check() (at netip.AddrPort, err error) {
	at, err = netip.ParseAddrPort(r.Listen)
	switch {
	case err != nil || at.Addr().Zone() != "":
		return at, fmt.Errorf("%q is not where the API can listen; write an IP address and a port, as 127.0.0.1:8080 or [::1]:8080", r.Listen)
	case (r.Certificate == "") != (r.Key == ""):
		return at, errors.New("a certificate needs its key, and a key its certificate")
	}
	for _, host := range r.Hosts {
		if !hostPattern.MatchString(host) {
			return at, fmt.Errorf("%q is no name of a machine", host)
		}
	}
	for _, origin := range r.Origins {
		scheme, rest, ok := strings.Cut(origin, "://")
		if !ok || scheme != "http" && scheme != "https" || rest == "" || strings.ContainsAny(rest, "/*@ \r\n") {
			return at, fmt.Errorf("%q is not the origin of a page; write it as https://lab.example", origin)
		}
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), nil
}

// openRemote opens the API on TCP.
func (d *daemon) openRemote(req RemoteRequest) error {
	at, err := req.check()
	if err != nil {
		return err
	}
	if d.state().Part != nil {
		return errors.New("this is a part of a lab over several machines; its API is where trivet up was called")
	}
	r, name := &d.remote, d.state().Name
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := d.isUp(); err != nil {
		return err
	}
	if r.closed {
		return errGoing
	}
	if r.record != nil {
		return fmt.Errorf("the API is at %s already; end that first:  trivet api off", r.says(name).URL)
	}
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		return fmt.Errorf("the API cannot listen: %w", err)
	}
	if host, err := os.Hostname(); err == nil && !at.Addr().IsLoopback() && hostPattern.MatchString(host) {
		req.Hosts = append(req.Hosts, host)
	}
	record := &remoteRecord{Listen: l.Addr().String(), Certificate: req.Certificate, Key: req.Key, Hosts: req.Hosts,
		Origins: req.Origins}
	if req.Certificate == "" && (req.TLS || !at.Addr().IsLoopback()) {
		certificate, key, failed := servers.SelfSigned("lab "+name, append(ownNames(at.Addr()), req.Hosts...))
		record.Certificate, record.Key, err = string(certificate), string(key), failed
	}
	token, reading := bearer.NewToken(), ""
	record.Token = digest(token)
	if req.ReadOnly {
		reading = bearer.NewToken()
		record.ReadToken = digest(reading)
	}
	var with *tls.Config
	if err == nil {
		with, err = record.tls()
	}
	if err == nil {
		err = d.keepRemote(record, map[string]string{tokenFile(name): token, readTokenFile(name): reading,
			certificateFile(name): record.Certificate})
	}
	if err != nil {
		l.Close()
		d.forgetRemote()
		return err
	}
	d.serveRemote(record, l, with)
	logged("the API is at " + r.says(name).URL)
	return nil
}

// ownNames lists the names and addresses that a certificate of this machine has to cover if the API
// listens at an address.
func ownNames(at netip.Addr) (out []string) {
	if !at.IsUnspecified() && !at.IsLoopback() {
		return []string{at.String()}
	}
	out = []string{"localhost", "127.0.0.1", "::1"}
	if at.IsLoopback() {
		return out
	}
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && !ip.IP.IsLinkLocalUnicast() {
			out = append(out, ip.IP.String())
		}
	}
	return out
}

func digest(token string) string {
	k := bearer.KeyOf(token)
	return hex.EncodeToString(k.Digest[:])
}

// tls is what it encrypts with; nil: nothing. Of the text of the certificate, which everybody may
// be given, only certificates are left, the server's first: the text may have had the key, too.
func (r *remoteRecord) tls() (*tls.Config, error) {
	if r.Certificate == "" {
		return nil, nil
	}
	pair, err := tls.X509KeyPair([]byte(r.Certificate), []byte(r.Key))
	if err == nil && pair.Leaf == nil {
		pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0])
	}
	if err != nil {
		return nil, fmt.Errorf("the API's certificate: %w", err)
	}
	r.Certificate = ""
	for _, der := range pair.Certificate {
		r.Certificate += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}, nil
}

// keys returns the digests of its tokens; the second, if any, is that for reading.
func (r *remoteRecord) keys() (out []bearer.Key, err error) {
	for _, sum := range []string{r.Token, r.ReadToken} {
		if sum == "" {
			continue
		}
		k := bearer.Key{Read: len(out) > 0}
		bytes, err := hex.DecodeString(sum)
		if copy(k.Digest[:], bytes); err != nil || len(bytes) != len(k.Digest) {
			return nil, errors.New("the record of the lab's API on TCP is damaged")
		}
		out = append(out, k)
	}
	return out, nil
}

// keepRemote writes down what the next daemon needs, and then files for the lab's owner; a file
// without text is removed.
func (d *daemon) keepRemote(record *remoteRecord, files map[string]string) error {
	text, err := json.Marshal(record)
	if err == nil {
		err = replaceFor(os.Geteuid(), remoteFile(d.state().Name), text)
	}
	for file, content := range files {
		if content == "" {
			err = errors.Join(err, removed(file))
		} else if err == nil {
			err = replaceFor(d.state().Owner, file, []byte(strings.TrimSpace(content)+"\n"))
		}
	}
	return err
}

func removed(file string) error {
	if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// forgetRemote removes what keepRemote has written.
func (d *daemon) forgetRemote() error {
	name := d.state().Name
	return errors.Join(removed(remoteFile(name)), removed(tokenFile(name)), removed(readTokenFile(name)),
		removed(certificateFile(name)))
}

// serveRemote begins to answer. The caller has locked remote.
func (d *daemon) serveRemote(record *remoteRecord, l net.Listener, with *tls.Config) {
	r := &d.remote
	r.record, r.listener, r.ended = record, l, make(chan struct{})
	r.server = &bearer.Server{Handler: d.byRemote(d.api), TLS: with, Hosts: record.Hosts, Origins: record.Origins,
		Refused: d.refusedRemote}
	keys, _ := record.keys()
	r.server.SetKeys(keys...)
	go func(s *bearer.Server, ended chan struct{}) {
		defer close(ended)
		if err := s.Serve(l); err != nil {
			d.happened("warning: the API on TCP has ended: " + err.Error())
		}
	}(r.server, r.ended)
}

// resumeRemote serves the API on TCP again as the last daemon did.
func (d *daemon) resumeRemote() {
	text, err := os.ReadFile(remoteFile(d.state().Name))
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	var record remoteRecord
	if err == nil {
		err = json.Unmarshal(text, &record)
	}
	if err == nil {
		_, err = record.keys()
	}
	var with *tls.Config
	if err == nil {
		with, err = record.tls()
	}
	var l net.Listener
	if err == nil {
		l, err = net.Listen("tcp", record.Listen)
	}
	if err == nil && with == nil {
		if err = d.renewTokens(&record); err != nil {
			l.Close()
		}
	}
	if err != nil {
		d.progress.warn(fmt.Sprintf("the lab's API is no longer on TCP: %v; trivet api on opens it anew", err))
		_ = d.forgetRemote()
		return
	}
	d.remote.mu.Lock()
	defer d.remote.mu.Unlock()
	d.serveRemote(&record, l, with)
}

// renewTokens replaces the last daemon's tokens: while no daemon ran, any user of this machine
// could listen at its port, and clients may have sent the tokens there.
func (d *daemon) renewTokens(record *remoteRecord) error {
	name, token := d.state().Name, bearer.NewToken()
	files := map[string]string{tokenFile(name): token}
	record.Token = digest(token)
	if record.ReadToken != "" {
		reading := bearer.NewToken()
		record.ReadToken, files[readTokenFile(name)] = digest(reading), reading
	}
	return d.keepRemote(record, files)
}

var errNoRemote = errors.New("the lab's API is not on TCP; open it there:  trivet api on")

// closeRemote ends the API on TCP.
func (d *daemon) closeRemote() error {
	r := &d.remote
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.record == nil {
		return errNoRemote
	}
	err := d.forgetRemote()
	r.record = nil
	r.listener.Close()
	r.server.SetKeys()
	<-r.ended
	logged("the API is no longer on TCP")
	return err
}

var errGoing = errors.New("the lab is going down")

// freeze sets whether the lab is going down, from when on its directory is not written to.
// Requests, among them the one to go down, are answered until endRemote.
func (r *remote) freeze(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = down
}

// endRemote stops listening, and waits until clients have read that the lab is down.
func (d *daemon) endRemote() {
	r := &d.remote
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.record != nil {
		r.listener.Close()
		<-r.ended
	}
}

// changeToken replaces a token, or removes the one for reading.
func (d *daemon) changeToken(req TokenRequest) error {
	if req.Remove && !req.ReadOnly {
		return errors.New("only the token for reading can be removed alone; trivet api off ends both")
	}
	r, name := &d.remote, d.state().Name
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return errGoing
	case r.record == nil:
		return errNoRemote
	case req.Remove && r.record.ReadToken == "":
		return errors.New("there is no token for reading")
	}
	now, token, file := *r.record, "", tokenFile(name)
	if !req.Remove {
		token = bearer.NewToken()
	}
	switch {
	case req.Remove:
		now.ReadToken, file = "", readTokenFile(name)
	case req.ReadOnly:
		now.ReadToken, file = digest(token), readTokenFile(name)
	default:
		now.Token = digest(token)
	}
	keys, err := now.keys()
	if err != nil {
		return err
	}
	old, _ := os.ReadFile(file)
	if err := d.keepRemote(&now, map[string]string{file: token}); err != nil {
		return errors.Join(fmt.Errorf("the old token holds: %w", err),
			d.keepRemote(r.record, map[string]string{file: string(old)}))
	}
	r.record = &now
	r.server.SetKeys(keys...)
	logged("the API's token is another one" + map[bool]string{true: " (for reading)"}[req.ReadOnly])
	return nil
}

// remoteNever lists prefixes of paths that are answered on the lab's socket alone: those that
// decide who has access over TCP, so that a stolen token loses its access once it is changed; those
// between the daemons of a lab's parts and their head; and those for debugging.
var remoteNever = []string{remotePath, "/v1/part/", "/debug/"}

// remoteWrites are requests that change something although they are GETs: a capture gives links
// devices, and shows what packets carry.
var remoteWrites = []string{"/v1/capture"}

// byRemote answers requests that came over TCP, and logs those that may change something.
func (d *daemon) byRemote(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _ := bearer.Of(r)
		below := func(path string) bool { return strings.HasPrefix(r.URL.Path, path) }
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		switch {
		case slices.ContainsFunc(remoteNever, below):
			bearer.Refuse(w, http.StatusForbidden, r.URL.Path+" is answered on the lab's socket only, not over TCP")
			return
		case key.Read && slices.ContainsFunc(remoteWrites, below):
			bearer.Refuse(w, http.StatusForbidden,
				"this token is for reading, and "+r.URL.Path+" changes links while it records them")
			return
		case !reads || slices.ContainsFunc(remoteWrites, below):
			logged(fmt.Sprintf("api %s: %s %.200q", r.RemoteAddr, r.Method, r.URL.Path))
		}
		next.ServeHTTP(w, r)
	})
}

// refusedRemote logs clients without a token, at most once a minute.
func (d *daemon) refusedRemote(from netip.Addr) {
	s := &d.remote.strangers
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count++; time.Since(s.told) < time.Minute {
		return
	}
	logged(fmt.Sprintf("api: %s without a valid token, the last from %s", words.Plural(s.count, "request"), from))
	s.count, s.told = 0, time.Now()
}

// Remote says where the lab's API is on TCP.
func (c *Client) Remote(ctx context.Context) (Remote, error) {
	return call[Remote](ctx, c, "GET", remotePath, nil)
}

// OpenRemote opens the lab's API on TCP.
func (c *Client) OpenRemote(ctx context.Context, r RemoteRequest) (Remote, error) {
	return call[Remote](ctx, c, "PUT", remotePath, r)
}

// CloseRemote ends the lab's API on TCP.
func (c *Client) CloseRemote(ctx context.Context) error {
	_, err := call[Remote](ctx, c, "DELETE", remotePath, nil)
	return err
}

// ChangeToken has another token made for it.
func (c *Client) ChangeToken(ctx context.Context, r TokenRequest) (Remote, error) {
	return call[Remote](ctx, c, "POST", remotePath+"/token", r)
}
