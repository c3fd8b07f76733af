// Package vsctl changes the machine's own Open vSwitch, as opposed to those of labs.
package vsctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"trivet.dev/trivet/internal/patience"
)

// program changes the machine's Open vSwitch, and waits until it has changed.
const program = "ovs-vsctl"

// Run runs ovs-vsctl with the given arguments, and returns what it prints.
func Run(args ...string) (string, error) {
	ctx, cancel := patience.OpenVSwitch.Context(context.Background())
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		err = fmt.Errorf("the machine's Open vSwitch: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return out.String(), err
}

// Has returns an error if the machine has no Open vSwitch with a bridge of this name.
func Has(bridge string) error {
	if _, err := exec.LookPath(program); err != nil {
		return errors.New("this machine has no Open vSwitch (" + program + ")")
	}
	_, err := Run("br-exists", bridge)
	var code *exec.ExitError
	if errors.As(err, &code) && code.ExitCode() == 2 {
		return fmt.Errorf("this machine's Open vSwitch has no bridge %s", bridge)
	}
	return err
}
