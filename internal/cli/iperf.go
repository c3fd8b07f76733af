package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
)

func (a *app) iperf() *cobra.Command {
	var r lab.IperfRequest
	cmd := &cobra.Command{
		Use:               "iperf A B",
		Short:             "Measure throughput from A to B with iperf3",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			r.From, r.To = args[0], args[1]
			for flag, n := range map[string]int{"time": r.Seconds, "parallel": r.Parallel} {
				if n < 1 {
					return usagef("--%s %d: write 1 or more", flag, n)
				}
			}
			c, _, err := a.client()
			if err != nil {
				return err
			}
			result, err := c.Iperf(cmd.Context(), r)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(result)
			}
			text := fmt.Sprintf("iperf %s → %s   %s %s", r.From, r.To, bits(result.BitsPerSecond), result.Protocol)
			if r.UDP {
				text += fmt.Sprintf("   %s lost, jitter %.3f ms, sent %s", percent(result.Loss), result.JitterMS,
					bits(result.Sent))
			} else {
				text += fmt.Sprintf("   %s", words.Plural(result.Retransmits, "retransmission"))
			}
			a.say("%s", text)
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&r.UDP, "udp", "u", false, "UDP, at --rate")
	f.IntVarP(&r.Seconds, "time", "t", 5, "seconds")
	f.IntVarP(&r.Parallel, "parallel", "P", 1, "parallel connections")
	f.IntVarP(&r.Omit, "omit", "O", 0, "seconds at the start that do not count")
	f.StringVar(&r.Rate, "rate", "", "rate to send at: 100mbit (default with UDP: 10mbit)")
	f.StringVar(&r.Control, "congestion-control", "",
		"TCP congestion control: cubic, reno, bbr (default: the machine's)")
	f.BoolVarP(&r.IPv6, "ipv6", "6", false, "over IPv6")
	return cmd
}

// bits formats a rate for the user.
func bits(v float64) string {
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%.2f Gbit/s", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.2f Mbit/s", v/1e6)
	}
	return fmt.Sprintf("%.2f kbit/s", v/1e3)
}
