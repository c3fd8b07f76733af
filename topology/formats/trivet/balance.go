package trivet

import "trivet.dev/trivet/topology"

// balanceOptions describe topology.Balance.
type balanceOptions struct {
	By         topology.BalanceBy     `yaml:"by" doc:"ecmp: over all shortest paths; off: one shortest path; load: what goes to a subnet, or between switches to a host, takes another path when links of its own are busy. Switches use a spanning tree but with load."`
	K1         *topology.Fraction     `yaml:"k1" doc:"Weight of the bandwidth that is used in a link's load; 0.8 when missing."`
	K2         *topology.Fraction     `yaml:"k2" doc:"Weight of its routers' flow entries; 0.2 when missing."`
	Period     topology.Duration      `yaml:"period" doc:"How often loads are looked at: 1s to 10m; 2s when missing."`
	Hysteresis *topology.Fraction     `yaml:"hysteresis" doc:"By how much the load of a path must be less before traffic moves there; 10% when missing."`
	Moves      int                    `yaml:"moves" as:"count" doc:"How much moves in a period at most; 8 when missing."`
	Per        topology.BalancePer    `yaml:"per" doc:"What of the traffic between routing nodes takes one path: prefix (the default), all that goes to a subnet; part, a sixteenth of its TCP or UDP, by bits of the ports; flow, each flow of TCP or UDP."`
	Choose     topology.BalanceChoose `yaml:"choose" doc:"When a path is chosen: busy (the default), another one when links of the path are busy with other traffic; as paper 2 can be read, once, when traffic begins; or always, every period, by loads of which its own is a part."`
	Largest    bool                   `yaml:"largest" doc:"Divide what a link carries by the bandwidth of the network's largest link, instead of its own."`
}
