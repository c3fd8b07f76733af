package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/topology"
)

// serving says where a controller listens and how it knows its switches.
type serving struct {
	listen        string
	cert, key, ca string
	insecure      bool
}

func (a *app) controller() *cobra.Command {
	var s serving
	var apps []string
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run Trivet's OpenFlow controller alone, for any OpenFlow 1.3 switches",
		Long: "Run Trivet's OpenFlow 1.3 controller alone, for any switches, until Ctrl-C. (A lab runs its own:\n" +
			"trivet up --controller trivet.) Plain TCP is for this machine; a switch elsewhere needs TLS, by which\n" +
			"both sides show a certificate.",
		Example: "  trivet controller\n  trivet controller --listen ssl:192.0.2.1:6653 --cert c.pem --key k.pem --ca switches.pem",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.runController(cmd.Context(), s, apps)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.listen, "listen", "tcp:127.0.0.1:6653", "address to listen on: tcp: or ssl:, IP address and port")
	f.StringSliceVar(&apps, "apps", []string{"learning"}, "what it does: "+strings.Join(builtin.Names, ", "))
	f.StringVar(&s.cert, "cert", "", "the controller's certificate, of ssl:")
	f.StringVar(&s.key, "key", "", "its private key")
	f.StringVar(&s.ca, "ca", "", "certificates of who signs the switches' certificates")
	f.BoolVar(&s.insecure, "insecure", false, "let anybody who reaches the address be a switch")
	return cmd
}

func (a *app) runController(ctx context.Context, s serving, names []string) error {
	listener, err := s.open()
	if err != nil {
		return err
	}
	defer listener.Close()
	c, err := builtin.New(builtin.Options{Log: slog.New(slog.NewTextHandler(a.err, nil)), Apps: names})
	if err != nil {
		return err
	}
	defer c.Close()
	a.say("controller listens on %s; Ctrl-C ends", s.listen)
	context.AfterFunc(ctx, func() { listener.Close() })
	return c.Serve(listener)
}

// open listens as the address says, and refuses to trust whoever comes from elsewhere.
func (s serving) open() (net.Listener, error) {
	if err := topology.CheckControllerAddress(s.listen); err != nil {
		return nil, err
	}
	transport, address, _ := strings.Cut(s.listen, ":")
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	if transport == "tcp" {
		if !at.Addr().IsLoopback() && !s.insecure {
			return nil, fmt.Errorf("--listen %s: whoever reaches this address could be a switch; use ssl: with --cert, --key and --ca, or say --insecure", s.listen)
		}
		return net.Listen("tcp", address)
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
