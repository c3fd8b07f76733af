package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/internal/asuser"
	"trivet.dev/trivet/lab"
)

func (a *app) remoteAPI() *cobra.Command {
	cmd := &cobra.Command{
		Use: "api", Short: "Have a lab's API on TCP, for programs elsewhere, or say where it is",
		Long: `Have a lab's API (trivet schema api) on TCP as well as on the lab's socket, or say where it is: the URL, and the file with the token.
Who shows the token may do what the lab's owner may: run programs as root in its nodes, and so anything on this machine. See docs/security.md.`,
		Example: "  trivet api on                                 a free port of 127.0.0.1\n  trivet api on --listen 192.0.2.1:8443         HTTPS, with a certificate that is made\n" +
			"  trivet api token                              another token; the old one ends\n  trivet api off",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withRemote(func(c *lab.Client) (lab.Remote, error) { return c.Remote(cmd.Context()) })
		},
	}
	cmd.AddCommand(a.apiOn(), a.apiOff(), a.apiToken())
	return cmd
}

func (a *app) apiOn() *cobra.Command {
	var r lab.RemoteRequest
	var certificate, key string
	cmd := &cobra.Command{
		Use: "on", Short: "Have a lab's API on TCP",
		Long: "Have a lab's API on TCP, until trivet api off or the lab is down; a daemon that trivet resume starts goes on with it:\n" +
			"with HTTPS by the same tokens, with plain HTTP by new ones in the same files.\n" +
			"At an address that other machines may reach it is HTTPS, with a certificate that is made, or your own.",
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&r.Listen, "listen", "127.0.0.1:0", "IP address and port; port 0: one that is free")
	f.BoolVar(&r.TLS, "tls", false, "HTTPS, also at an address of this machine alone")
	f.StringVar(&certificate, "cert", "",
		"file with the certificate, in PEM (default: one is made, which no CA has signed)")
	f.StringVar(&key, "key", "", "file with its private key")
	f.StringSliceVar(&r.Hosts, "host", nil,
		"a name by which clients call this machine; names that are not given are refused")
	f.StringSliceVar(&r.Origins, "origin", nil, "a page in a browser that may use the API: https://lab.example")
	f.BoolVar(&r.ReadOnly, "read-only", false, "also make a token for reading alone")
	cmd.MarkFlagsRequiredTogether("cert", "key")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for file, to := range map[string]*string{certificate: &r.Certificate, key: &r.Key} {
			if file == "" {
				continue
			}
			if err := asuser.Do(func() error {
				text, err := os.ReadFile(file)
				*to = string(text)
				return err
			}); err != nil {
				return err
			}
		}
		return a.withRemote(func(c *lab.Client) (lab.Remote, error) { return c.OpenRemote(cmd.Context(), r) })
	}
	return cmd
}

func (a *app) apiOff() *cobra.Command {
	return &cobra.Command{
		Use: "off", Short: "End a lab's API on TCP, with all that goes on over it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := a.client()
			if err == nil {
				err = c.CloseRemote(cmd.Context())
			}
			return err
		},
	}
}

func (a *app) apiToken() *cobra.Command {
	var r lab.TokenRequest
	cmd := &cobra.Command{
		Use: "token", Short: "Make another token; the old one, and all that goes on by it, ends at once",
		Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withRemote(func(c *lab.Client) (lab.Remote, error) { return c.ChangeToken(cmd.Context(), r) })
		},
	}
	cmd.Flags().BoolVar(&r.ReadOnly, "read-only", false, "that for reading alone, also where there is none yet")
	cmd.Flags().BoolVar(&r.Remove, "remove", false, "with --read-only: none in its place")
	return cmd
}

// withRemote sends a request to the chosen lab's daemon, and shows the address of its API.
func (a *app) withRemote(ask func(*lab.Client) (lab.Remote, error)) error {
	c, s, err := a.client()
	if err != nil {
		return err
	}
	r, err := ask(c)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(r)
	}
	if r.URL == "" {
		a.say("the API of lab %s is on its socket alone, %s; trivet api on has it on TCP, too", s.Name, s.Socket())
		return nil
	}
	rows := [][]string{{"url", r.URL}, {"token", r.TokenFile}}
	more := [][]string{{"token for reading", r.ReadTokenFile}, {"certificate", r.Certificate},
		{"its SHA-256", r.Fingerprint}}
	for _, row := range more {
		if row[1] != "" {
			rows = append(rows, row)
		}
	}
	for _, line := range columns(rows, "ll") {
		fmt.Fprintln(a.out, line)
	}
	return nil
}
