package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func (a *app) capture() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:               "capture LINK|NODE",
		Short:             "Record the packets of a link (A-B) or of all links of a node, as pcap",
		Example:           "  trivet capture s1-s2 -w s1-s2.pcap\n  trivet capture h1 | wireshark -k -i -\n  trivet capture h1-s1 | tcpdump -n -r -",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeNodesAndLinks,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := a.client()
			if err != nil {
				return err
			}
			out := os.Stdout
			if file != "" {
				if out, err = os.Create(file); err != nil {
					return err
				}
				defer out.Close()
				fmt.Fprintf(a.err, "capturing %s to %s; Ctrl-C ends\n", args[0], file)
			} else if isTerminal(os.Stdout) {
				return fmt.Errorf("a capture is not text: write it to a file (-w %s.pcap) or pipe it into a program (| wireshark -k -i -)", args[0])
			}
			return c.Capture(cmd.Context(), args[0], out)
		},
	}
	cmd.Flags().StringVarP(&file, "write", "w", "", "file to write")
	return cmd
}
