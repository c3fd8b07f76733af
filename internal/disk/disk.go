// Package disk detects full disks, on which a failing program cannot log why.
package disk

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Full returns an error if there is no room left for files in a directory; nil: there is, or it is
// unknown.
func Full(dir string) error {
	var at unix.Statfs_t
	if unix.Statfs(dir, &at) == nil && at.Blocks > 0 && at.Bavail == 0 {
		return fmt.Errorf("%s: %w", dir, unix.ENOSPC)
	}
	return nil
}
