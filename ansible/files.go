// Package ansible holds the collection trivet.rack, so that the program has it wherever it is
// installed.
package ansible

import "embed"

// Files are the collection's, at the paths that ansible-galaxy would put them below
// ansible_collections/trivet/rack.
//
//go:embed galaxy.yml README.md meta playbooks plugins roles
var Files embed.FS
