// Package kernel tells of the kernel that is running.
package kernel

import "golang.org/x/sys/unix"

// Release is what it is called, as by uname -r: 6.1.0-18-amd64.
func Release() string {
	var name unix.Utsname
	_ = unix.Uname(&name) // which fails only for a bad address
	return unix.ByteSliceToString(name.Release[:])
}
