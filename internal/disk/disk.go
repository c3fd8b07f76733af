// Package disk says why a program that has ended may have left no word of it.
package disk

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Full says that there is no room for what stands in a directory; nil: there is, or it is not
// known.
func Full(dir string) error {
	var at unix.Statfs_t
	if unix.Statfs(dir, &at) == nil && at.Blocks > 0 && at.Bavail == 0 {
		return fmt.Errorf("%s: %w", dir, unix.ENOSPC)
	}
	return nil
}
