// Package kernel identifies the running kernel.
package kernel

import "golang.org/x/sys/unix"

// Release returns the kernel's release, as uname -r: 6.1.0-18-amd64.
func Release() string {
	var name unix.Utsname
	_ = unix.Uname(&name) // which fails only for a bad address
	return unix.ByteSliceToString(name.Release[:])
}
