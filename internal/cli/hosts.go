package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/internal/bearer"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/lab"
)

// asking says which controller is queried: the lab's, or one that runs on its own.
type asking struct {
	address, tokenFile string
}

// controllerFlags adds the flags of all commands that query a controller.
func controllerFlags(cmd *cobra.Command) *asking {
	var k asking
	cmd.Flags().StringVar(&k.address, "api", "",
		"ask a controller that runs alone, at the address that it printed: unix:PATH or tcp:127.0.0.1:PORT")
	cmd.Flags().StringVar(&k.tokenFile, "token-file", "", "with --api tcp:…: the file with the token")
	return &k
}

// controllerClient returns a client of the chosen controller.
func (a *app) controllerClient(k *asking) (*api.Client, error) {
	if k.address == "" {
		c, _, err := a.client()
		if err != nil {
			return nil, err
		}
		return a.controllerOf(c), nil
	}
	token := os.Getenv("TRIVET_TOKEN")
	if k.tokenFile != "" {
		var err error
		if token, err = bearer.ReadToken(k.tokenFile); err != nil {
			return nil, err
		}
	}
	return api.Dial(k.address, token)
}

// controllerOf returns a client of a lab's controller.
func (a *app) controllerOf(c *lab.Client) *api.Client {
	out := c.Controller()
	out.Lacks = a.lacks
	return out
}

func (a *app) hosts() *cobra.Command {
	cmd := &cobra.Command{
		Use: "hosts", Short: "List the hosts that the controller has heard from: addresses, and where they are",
		Args: cobra.NoArgs,
		Long: "List the hosts that the controller has heard from: their addresses, and the switch and port where they are. Those of\n" +
			"the topology that have not said anything yet are listed, too.",
	}
	k := controllerFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.controllerClient(k)
		if err != nil {
			return err
		}
		hosts, err := c.Hosts(cmd.Context())
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(hosts)
		}
		a.showHosts(hosts)
		return nil
	}
	return cmd
}

func (a *app) showHosts(hosts []api.Host) {
	rows := [][]string{{"HOST", "ADDRESSES", "MAC", "SWITCH", "PORT", "LAST SEEN"}}
	for _, h := range hosts {
		seen := "not yet"
		if h.Seen != nil {
			seen = ago(*h.Seen) + " ago"
		}
		rows = append(rows, []string{dash(h.Name), dash(joined(h.Addresses)), h.MAC, h.Switch, h.Interface, seen})
	}
	if len(hosts) == 0 {
		a.say("the controller knows no hosts yet")
		return
	}
	a.table(rows)
}

func joined[T fmt.Stringer](list []T) string {
	words := make([]string, len(list))
	for i, x := range list {
		words[i] = x.String()
	}
	return strings.Join(words, ", ")
}

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return patience.Query.Context(ctx)
}

// completeSwitches offers the controller's switches to the shell.
func (a *app) completeSwitches(k *asking, kind string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, err := a.controllerClient(k)
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := bounded(cmd.Context())
		defer cancel()
		t, err := c.Topology(ctx)
		var names []string
		for _, s := range t.Switches {
			if kind == "" || s.Kind == kind {
				names = append(names, s.Name)
			}
		}
		_ = err // then there is nothing to offer
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
