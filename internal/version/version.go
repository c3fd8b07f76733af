// Package version holds the version of this build of Trivet.
package version

// Version is set by the build (go build -ldflags -X).
var Version = "devel"
