// Package version holds what this build of Trivet is called.
package version

// Version is set by the build (go build -ldflags -X).
var Version = "devel"
