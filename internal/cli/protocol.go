package cli

import (
	"maps"

	"github.com/spf13/cobra"
)

// protocol is the part of a routing protocol in the command line.
type protocol struct {
	name      string                    // as in topology.Protocol, and of its command group
	letter    string                    // code of its routes: FRR's
	commands  func(*app) *cobra.Command // the group
	elsewhere map[string]string         // as the table of that name
}

var protocols []protocol

// addProtocol registers a protocol. It must be called in an init function.
func addProtocol(p protocol) {
	protocols = append(protocols, p)
	codes[p.name] = p.letter
	maps.Copy(elsewhere, p.elsewhere)
}
