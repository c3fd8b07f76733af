package lab_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	_ "trivet.dev/trivet/internal/all"
	"trivet.dev/trivet/internal/leader"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/target/local"
)

// TestMain lets the test binary act as a lab's daemon, as a node's first process and as the leader
// of a terminal, as trivet does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		var err error
		switch os.Args[1] {
		case lab.DaemonCommand:
			err = lab.RunDaemon(os.Args[2])
		case local.InitCommand:
			err = local.RunInit()
		case leader.Command:
			err = leader.Run(os.Args[2:])
		default:
			if !strings.HasPrefix(os.Args[1], "__") {
				os.Exit(m.Run())
			}
			err = fmt.Errorf("%s: this test has no such part to play", os.Args[1]) // else it would run the tests, which bring up labs, which …
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
