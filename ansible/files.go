// Package ansible embeds the collection trivet.rack, so that the program has it wherever it is
// installed.
package ansible

import "embed"

// Files are the collection's, at their paths below ansible_collections/trivet/rack.
//
//go:embed galaxy.yml README.md meta playbooks plugins roles
var Files embed.FS
