package drive

import (
	"context"

	"trivet.dev/trivet/bench/environment"
	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/verify"
)

// verify looks, before anything is measured, whether links of a lab of Trivet's carry what they are
// to carry, and no more: as many as there is time for. What does not hold speaks against all
// figures of the lab.
func (i *instance) verify(ctx context.Context) (doubts []environment.Reason) {
	own, ok := i.lab.(*ownLab)
	if !ok {
		return nil
	}
	limited := false
	for _, l := range i.topology.Links {
		limited = limited || l.Egress(0).Bandwidth > 0 || l.Egress(1).Bandwidth > 0
	}
	if !limited {
		return nil
	}
	r, err := verify.Run(ctx, own.client, verify.Options{Quick: true, RateOnly: true, Longest: experiment.VerifyTime})
	if err != nil {
		return []environment.Reason{{Level: environment.Doubtful, Code: "verify", Text: "the lab could not be verified: " + err.Error()}}
	}
	for _, text := range r.Says(verify.Wrong) {
		doubts = append(doubts, environment.Reason{Level: environment.Bad, Code: "verify", Text: text})
	}
	return doubts
}
