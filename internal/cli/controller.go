package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/store/etcd"
	"trivet.dev/trivet/internal/bearer"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// serving says where a controller listens and how it authenticates its switches.
type serving struct {
	listen        string
	cert, key, ca string
	bind          bool
	insecure      bool
}

// running says what a controller does, and who may query it.
type running struct {
	apps           []string
	topology       string
	database       string
	api, tokenFile string

	member       string // of a cluster, its name
	store, login string // where the apps keep their state, if not in the database
	tls          etcd.TLS
	broker       brokerFlags

	wired bool // links are as in the topology, without discovery
	rows  int  // of each time series of the database
}

func (a *app) controller() *cobra.Command {
	var s serving
	var r running
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run Trivet's OpenFlow controller alone, for any OpenFlow 1.3 switches",
		Long: "Run Trivet's OpenFlow 1.3 controller alone, for any switches, until Ctrl-C. (A lab runs its own:\n" +
			"trivet up --controller trivet.) Plain TCP is for this machine; a switch elsewhere needs TLS, by which\n" +
			"both sides present a certificate. trivet flows, routes, path, hosts and top query its API: --api ADDRESS.",
		Example: "  trivet controller\n  trivet controller --topology campus.yaml --database campus.db --api tcp:127.0.0.1:6680\n" +
			"  trivet controller --listen ssl:192.0.2.1:6653 --cert c.pem --key k.pem --ca switches.pem",
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&s.listen, "listen", "tcp:127.0.0.1:6653", "address to listen on: tcp: or ssl:, IP address and port")
	f.StringSliceVar(&r.apps, "apps", nil,
		"what it does: "+strings.Join(apps.Names(), ", ")+" (learning; with --topology all)")
	f.StringVar(&r.topology, "topology", "", "file or generator, for the names of nodes, which of them are routers, and the capacity of links; a file .json is what GET /v1/lab has")
	f.StringVar(&r.database, "database", "",
		"SQLite file that keeps what it knows, and what users add, for its next run")
	f.StringVar(&r.api, "api", "",
		"where its API is: unix:PATH, tcp:127.0.0.1:PORT, or none (default: a Unix socket of the user's)")
	f.StringVar(&r.tokenFile, "token-file", "",
		"with --api tcp:…: the file with the token, created if missing (default: a token is printed)")
	f.StringVar(&r.store, "store", "",
		"etcd that keeps what users add, instead of the database: https://HOST:PORT[,…][/PREFIX]")
	f.StringVar(&r.login, "store-login", "", "file with user:password for etcd")
	f.StringVar(&r.tls.Certificate, "store-cert", "", "certificate that etcd asks for")
	f.StringVar(&r.tls.Key, "store-key", "", "its private key")
	f.StringVar(&r.tls.CA, "store-ca", "",
		"certificates of the CA that signs etcd's certificates (default: those that this machine trusts)")
	f.StringVar(&r.member, "member", "",
		"be a member of the cluster of controllers that share the store, by this name (see docs/cluster.md)")
	r.broker.register(f)
	f.BoolVar(&r.wired, "wired", false,
		"the cables are as --topology has them: ports forward before probes have looked at them")
	f.IntVar(&r.rows, "database-rows", 0, "how much each time series of the database keeps, at most (default: a day)")
	f.StringVar(&s.cert, "cert", "", "the controller's certificate, for ssl:")
	f.StringVar(&s.key, "key", "", "its private key")
	f.StringVar(&s.ca, "ca", "", "certificates of the CA that signs the switches' certificates")
	f.BoolVar(&s.bind, "bind-certificates", false,
		"with ssl:, accept a switch only with a datapath id that its certificate names (see docs/controller.md)")
	f.BoolVar(&s.insecure, "insecure", false, "accept anyone who can reach the address as a switch")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.runController(cmd.Context(), s, r) }
	return cmd
}

func (a *app) runController(ctx context.Context, s serving, r running) error {
	o, err := r.options(slog.New(slog.NewTextHandler(a.err, nil)))
	if err != nil {
		return err
	}
	broker, err := r.reportsBy()
	if err != nil {
		return err
	}
	listener, err := s.open()
	if err != nil {
		return err
	}
	defer listener.Close()
	queries, err := r.open(s.listen)
	if err != nil {
		return err
	}
	if queries != nil {
		defer queries.Close()
	}
	ctx, letGo, err := r.openStore(ctx, &o)
	if err != nil {
		return err
	}
	defer letGo()
	c, err := builtin.New(o)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, centre, leave, err := a.join(ctx, c, s, r.member, o, broker, queries)
	if err != nil {
		return err
	}
	defer leave()
	a.say("controller listens on %s; Ctrl-C ends   apps %s", s.listen, strings.Join(c.Apps, ", "))
	if queries != nil {
		server := api.Server{Reload: r.reload(c)}
		if centre != nil {
			server.More, server.Collectors = centre.Register, []prometheus.Collector{centre}
		}
		server.Use(c)
		go func() {
			if err := server.Serve(queries); err != nil {
				a.warn("the API has ended:", err)
			}
		}()
		how := ""
		switch {
		case r.tokenFile != "" && queries.Token != "":
			how = " --token-file " + r.tokenFile
		case queries.Token != "":
			how = "   with TRIVET_TOKEN=" + queries.Token
		}
		a.say("ask it by    trivet flows --api %s%s", queries.Address, how)
	}
	if s.bind {
		c.Allowed = boundTo
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	err = c.Serve(listener)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// options returns the controller's options.
func (r running) options(log *slog.Logger) (builtin.Options, error) {
	o := builtin.Options{Log: log, Apps: r.apps, Database: r.database, DatabaseRows: r.rows, Wired: r.wired,
		Member: r.member}
	if r.rows < 0 {
		return o, fmt.Errorf("--database-rows %d: write a number above 0", r.rows)
	}
	if r.topology == "" {
		if r.wired {
			return o, errors.New("--wired: needs --topology, which says how the cables are")
		}
		if len(o.Apps) == 0 {
			o.Apps = []string{"learning"}
		}
		return o, nil
	}
	var err error
	o.Topology, err = r.readTopology()
	return o, err
}

// readTopology reads a file or runs a generator. A resolved topology, as from the API of a lab, is
// not resolved again.
func (r running) readTopology() (t *topology.Topology, err error) {
	if filepath.Ext(r.topology) == ".json" {
		text, err := os.ReadFile(r.topology)
		if err != nil {
			return nil, err
		}
		t = &topology.Topology{}
		if err := json.Unmarshal(text, t); err != nil {
			return nil, fmt.Errorf("%s: %w", r.topology, words.JSON(err))
		}
	} else if t, _, err = new(source).load(r.topology); err != nil {
		return nil, err
	}
	resolved, problems := topology.Resolve(t,
		topology.Defaults{Datapath: topology.OVS, Controlled: topology.OVS, Controller: topology.ControllerTrivet})
	return resolved, problems.Err()
}

// reload returns a function that gives a controller the topology in its file anew; nil if it has no
// file.
func (r running) reload(c *builtin.Controller) func(context.Context) error {
	if r.topology == "" {
		return nil
	}
	var one sync.Mutex
	return func(context.Context) error {
		one.Lock()
		defer one.Unlock()
		t, err := r.readTopology()
		if err != nil {
			return err
		}
		return c.Configure(t)
	}
}

// open makes the API listen; nil: it is off.
func (r running) open(listen string) (*api.Listener, error) {
	if r.api == "none" {
		return nil, nil
	}
	address := r.api
	if address == "" {
		dir, err := socketDir()
		if err != nil {
			return nil, err
		}
		address = "unix:" + filepath.Join(dir, "controller-"+listen[strings.LastIndex(listen, ":")+1:]+".sock")
	}
	token := ""
	if strings.HasPrefix(address, "tcp:") {
		var err error
		if token, err = bearer.MakeToken(r.tokenFile); err != nil {
			return nil, err
		}
	}
	return api.Open(address, token)
}

// socketDir is the directory of a user's sockets.
func socketDir() (string, error) {
	dir := lab.RunDir()
	if os.Getuid() != 0 {
		if dir = os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
			return dir, nil
		}
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("trivet-%d", os.Getuid()))
		return dir, makeOwnDir(dir)
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// makeOwnDir makes a directory that belongs to this user alone, in a place where anybody may make
// one of that name.
func makeOwnDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(s.Uid) != os.Getuid() ||
		info.Mode().Perm() != 0o700 {
		return fmt.Errorf("%s must be a directory that you own and nobody else can enter; remove it, or set XDG_RUNTIME_DIR", dir)
	}
	return nil
}

// open listens as the address says. Without TLS or --insecure, it refuses an address that others
// can reach.
func (s serving) open() (net.Listener, error) {
	if err := topology.CheckControllerAddress(s.listen); err != nil {
		return nil, err
	}
	transport, address, _ := strings.Cut(s.listen, ":")
	if s.bind && transport != "ssl" {
		return nil, fmt.Errorf("--bind-certificates: over %s switches present no certificate; use --listen ssl:…",
			transport)
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	if transport == "tcp" {
		if !at.Addr().IsLoopback() && !s.insecure {
			return nil, fmt.Errorf("--listen %s: anyone who can reach this address could act as a switch; use ssl: with --cert, --key and --ca, or add --insecure", s.listen)
		}
		return net.Listen("tcp", address)
	}
	if s.cert == "" || s.key == "" || s.ca == "" {
		return nil, fmt.Errorf("--listen %s: needs --cert and --key (its own, PEM), and --ca (the CA that signs those of switches)", s.listen)
	}
	cert, err := tls.LoadX509KeyPair(s.cert, s.key)
	if err != nil {
		return nil, fmt.Errorf("--cert and --key: %w", err)
	}
	pem, err := os.ReadFile(s.ca)
	if err != nil {
		return nil, fmt.Errorf("--ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("--ca: the file holds no certificate in PEM format")
	}
	return tls.Listen("tcp", address, &tls.Config{Certificates: []tls.Certificate{cert},
		ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12})
}

// boundTo says whether the certificate that a switch has presented names a datapath id: dpid:ID,
// with up to 16 hexadecimal digits, as its common name or as a URI among its alternative names, of
// which there may be several.
func boundTo(conn net.Conn, dpid uint64) error {
	shown, ok := conn.(*tls.Conn)
	if !ok || len(shown.ConnectionState().PeerCertificates) == 0 {
		return errors.New("the switch presented no certificate")
	}
	cert := shown.ConnectionState().PeerCertificates[0]
	names := []string{cert.Subject.CommonName}
	for _, u := range cert.URIs {
		names = append(names, u.String())
	}
	for _, n := range names {
		digits, ok := strings.CutPrefix(n, "dpid:")
		if id, err := strconv.ParseUint(digits, 16, 64); ok && err == nil && id == dpid {
			return nil
		}
	}
	return fmt.Errorf("datapath id %016x is not named by the switch's certificate, which is for %q: "+
		"issue one with the common name dpid:%016x, or with that as a URI among its subject alternative names", dpid,
		names, dpid)
}
