package drive

import (
	"context"
	"slices"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/verify"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/topology"
)

// verify looks, before anything is measured, whether a lab of Trivet's whose links are asked for
// something is what its topology says, as far as there is time: first what small packets show, then
// as many rates as may be. What does not hold speaks against all figures of the lab. One that
// promises nothing but to carry packets is left as it came up, cold.
func (i *instance) verify(ctx context.Context) (doubts []environment.Reason) {
	own, ok := i.lab.(*ownLab)
	if !ok || !slices.ContainsFunc(i.topology.Links, (*topology.Link).Impaired) {
		return nil
	}
	r, err := verify.Run(ctx, own.client, verify.Options{Quick: true, LinksOnly: true, Longest: experiment.VerifyTime})
	if err != nil {
		return []environment.Reason{{Level: environment.Doubtful, Code: "verify",
			Text: "the lab could not be verified: " + err.Error()}}
	}
	for _, text := range r.Says(verify.Wrong) {
		doubts = append(doubts, environment.Reason{Level: environment.Bad, Code: "verify", Text: text})
	}
	return doubts
}
