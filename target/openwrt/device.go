package openwrt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/configured"
)

// dir is the directory of a lab's files on a device: in memory, writable only for root.
func dir(id string) string { return "/var/run/trivet-" + id }

// run runs a command of a lab's script on its device.
func run(ctx context.Context, l *site.Login, id string, arguments ...string) (string, error) {
	return runWith(ctx, l, id, nil, arguments...)
}

// runWith is run with an input.
func runWith(ctx context.Context, l *site.Login, id string, input io.Reader, arguments ...string) (string, error) {
	out, err := l.Run(ctx, "sh "+words.Shell(append([]string{dir(id) + "/switch.sh"}, arguments...)...), input)
	if err != nil {
		return "", fmt.Errorf("%s: %w", l.Machine.Name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Up makes a device the switch of a plan. If that fails, the device is as it was before.
func (p Plan) Up(ctx context.Context, l *site.Login) error {
	if err := p.send(ctx, l); err != nil {
		return err
	}
	_, err := run(ctx, l, p.ID, "up")
	return err
}

// send writes the script of a plan to its device, and changes nothing else.
func (p Plan) send(ctx context.Context, l *site.Login) error {
	network, err := l.Run(ctx, "/sbin/uci -q export network", nil)
	if err != nil {
		return fmt.Errorf("%s: read its configuration (uci export network): %w", l.Machine.Name, err)
	}
	script, err := p.script(string(network))
	if err != nil {
		return fmt.Errorf("%s: %w", l.Machine.Name, err)
	}
	at := quote(dir(p.ID))
	// The script is replaced atomically, as an incomplete one would be worse than none.
	to := fmt.Sprintf("umask 077 && mkdir -p %[1]s && cat >%[1]s/new && mv %[1]s/new %[1]s/switch.sh", at)
	if _, err := l.Run(ctx, to, strings.NewReader(script)); err != nil {
		return fmt.Errorf("%s: send the script to %s: %w", l.Machine.Name, dir(p.ID), err)
	}
	return nil
}

// SetPorts sets the ports of a device up or down as a plan says; the plan differs from the current
// one in nothing else.
func (p Plan) SetPorts(ctx context.Context, l *site.Login) error {
	if err := p.send(ctx, l); err != nil {
		return err
	}
	_, err := run(ctx, l, p.ID, "set")
	return err
}

// Down restores the device's state from before Up, if Up was called for that lab. It returns what
// could not be restored.
func (p Plan) Down(ctx context.Context, l *site.Login) (lost string, err error) {
	ctx, cancel := patience.DeviceDown.Context(ctx)
	defer cancel()
	is, err := p.Is(ctx, l)
	if err == nil && is {
		lost, err = run(ctx, l, p.ID, "down")
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%s: its shell has not made it what it was within %s; there:  sh %s/switch.sh down",
			l.Machine.Name, patience.DeviceDown.Within(err), dir(p.ID))
	}
	return lost, err
}

// Is says whether a device is a switch of a lab, or has begun to be.
func (p Plan) Is(ctx context.Context, l *site.Login) (bool, error) {
	out, err := l.Run(ctx, "[ ! -e "+quote(dir(p.ID)+"/switch.sh")+" ] || echo yes", nil)
	if err != nil {
		return false, fmt.Errorf("%s: %w", l.Machine.Name, err)
	}
	return strings.TrimSpace(string(out)) == "yes", nil
}

// beat is the interval of the head's heartbeat to a device.
const beat = 2 * time.Second

// Beat sends the heartbeat that keeps a device from reverting, until the connection or ctx ends, or
// the device has reverted.
func (p Plan) Beat(ctx context.Context, l *site.Login) error {
	s, err := l.Session(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	in, out := io.Pipe()
	s.Stdin = in
	ended := make(chan error, 1)
	if err := s.Start("exec sh " + quote(dir(p.ID)+"/switch.sh") + " beat"); err != nil {
		return err
	}
	go func() { ended <- s.Wait() }()
	for {
		go func() { _, _ = out.Write([]byte("\n")) }()
		select {
		case err := <-ended:
			out.Close()
			if is, asked := p.Is(ctx, l); asked == nil && !is {
				return configured.ErrGone
			}
			return errors.Join(errors.New("the connection is lost"), err)
		case <-ctx.Done():
			out.Close()
			select { // it ends by itself, as its input has ended
			case <-ended:
			case <-time.After(beat):
			}
			return ctx.Err()
		case <-time.After(beat):
		}
	}
}

// Status returns the state of a device's connections to its controllers, under the addresses that
// the device uses.
func (p Plan) Status(ctx context.Context, l *site.Login) (out []datapath.ControllerStatus, err error) {
	if len(p.Controllers) == 0 {
		return nil, nil
	}
	if p.Agent == site.AgentOFSwitch { // it does not report that
		connected, err := run(ctx, l, p.ID, "connected", strings.TrimPrefix(p.Controllers[0], "tcp:"))
		return []datapath.ControllerStatus{{Address: p.Controllers[0], Connected: connected == "yes"}}, err
	}
	text, err := run(ctx, l, p.ID, "status")
	if err != nil {
		return nil, err
	}
	return readStatus(text)
}

// readStatus parses the columns of controllers that ovs-vsctl prints: target, is_connected, role,
// status.
func readStatus(text string) (out []datapath.ControllerStatus, err error) {
	var table struct {
		Data [][]json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal([]byte(text), &table); err != nil {
		return nil, fmt.Errorf("what ovs-vsctl says of controllers: %w", err)
	}
	for _, row := range table.Data {
		if len(row) != 4 {
			return nil, fmt.Errorf("what ovs-vsctl says of controllers has %d columns, not 4", len(row))
		}
		c := datapath.ControllerStatus{}
		if err := errors.Join(json.Unmarshal(row[0], &c.Address), json.Unmarshal(row[1], &c.Connected)); err != nil {
			return nil, err
		}
		_ = json.Unmarshal(row[2], &c.Role) // an empty set before it is known
		var status []json.RawMessage
		var pairs [][2]string
		if json.Unmarshal(row[3], &status) == nil && len(status) == 2 && json.Unmarshal(status[1], &pairs) == nil {
			for _, p := range pairs {
				if p[0] == "last_error" {
					c.Error = p[1]
				}
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// Flows counts the flow entries of a switch.
func (p Plan) Flows(ctx context.Context, l *site.Login) (int, error) {
	if p.Agent == site.AgentOFSwitch {
		return 0, errors.New("the agent ofswitch does not say how many flow entries it has")
	}
	out, err := run(ctx, l, p.ID, "flows")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(out)
}

// ofctl has ovs-ofctl ask a switch by Open vSwitch something, with an input.
func (p Plan) ofctl(ctx context.Context, l *site.Login, input, command string, more ...string) (string, error) {
	return runWith(ctx, l, p.ID, strings.NewReader(input),
		append([]string{"ofctl", p.protocols(), command}, more...)...)
}
