package cli

import (
	"maps"

	"github.com/spf13/cobra"
)

// protocol is what the command line has of a routing protocol.
type protocol struct {
	name      string                    // as in topology.Protocol, and of its group of commands
	letter    string                    // of its routes: FRR's
	commands  func(*app) *cobra.Command // the group
	elsewhere map[string]string         // as the table of that name
}

var protocols []protocol

// addProtocol adds what there is of a protocol. It must be called in an init function.
func addProtocol(p protocol) {
	protocols = append(protocols, p)
	codes[p.name] = p.letter
	maps.Copy(elsewhere, p.elsewhere)
}
