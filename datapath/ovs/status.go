package ovs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// BridgeStatus is the current state of a bridge.
type BridgeStatus struct {
	Name        string
	Controllers []ControllerStatus
	Ports       []PortStatus // by number
}

// ControllerStatus is one bridge's connection to one controller.
type ControllerStatus struct {
	Target    string
	Connected bool   // the OpenFlow handshake is complete
	Role      string // "master", "slave", "other"; empty before it is known
	State     string // "ACTIVE", "IDLE", "BACKOFF", "CONNECTING", "VOID"
	LastError string // why the last connection ended or failed: "Connection refused"
}

// PortStatus is a port, with its counters since it was added.
type PortStatus struct {
	Name     string
	Number   int   // OpenFlow port number
	Error    error // why it does not work; nil when it does
	Counters map[string]uint64
}

// Open vSwitch writes counters and connections to the database at an interval. A lab should not be
// disturbed by that, so the interval is an hour; but when the interval changes Open vSwitch writes
// at once, so each query switches between these two values (in ms).
const statsInterval = "stats-update-interval"

var statsIntervals = [2]string{"3600000", "3600001"}

// refresh makes ovs-vswitchd write counters and connections to the database now.
func (s *Switches) refresh(ctx context.Context) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	root, err := readRoot(ctx, s.db)
	if err != nil {
		return err
	}
	interval := statsIntervals[0]
	if root.OtherConfig[statsInterval] == interval {
		interval = statsIntervals[1]
	}
	root.OtherConfig[statsInterval] = interval
	t := transaction{db: s.db}
	t.update(&root, &root.OtherConfig)
	if err := s.commit(ctx, &t, root); err != nil {
		return err
	}
	// The statistics are written after the confirmation that the interval has changed. A second,
	// empty change is applied after that, and the database keeps the order.
	return s.commit(ctx, &transaction{db: s.db}, root)
}

// Status returns all bridges, by name.
func (s *Switches) Status(ctx context.Context) ([]BridgeStatus, error) {
	if err := s.refresh(ctx); err != nil {
		return nil, err
	}
	have, err := readTables(ctx, s.db)
	if err != nil {
		return nil, err
	}
	counters, err := s.counters(ctx)
	if err != nil {
		return nil, err
	}
	var out []BridgeStatus
	for _, row := range have.bridges {
		b := BridgeStatus{Name: row.Name}
		for _, uuid := range row.Controllers {
			b.Controllers = append(b.Controllers, have.controllers[uuid].status())
		}
		for _, uuid := range row.Ports {
			for _, uuid := range have.ports[uuid].Interfaces {
				if r := have.interfaces[uuid]; r.Name != row.Name && r.Type != unplugged {
					p := PortStatus{Name: r.Name, Error: r.failure(), Counters: counters[r.Name]}
					if r.Number != nil {
						p.Number = *r.Number
					}
					b.Ports = append(b.Ports, p)
				}
			}
		}
		slices.SortFunc(b.Controllers, func(x, y ControllerStatus) int { return cmp.Compare(x.Target, y.Target) })
		slices.SortFunc(b.Ports, func(x, y PortStatus) int { return cmp.Compare(x.Number, y.Number) })
		out = append(out, b)
	}
	slices.SortFunc(out, func(x, y BridgeStatus) int { return cmp.Compare(x.Name, y.Name) })
	return out, nil
}

func (r *controllerRow) status() ControllerStatus {
	c := ControllerStatus{Target: r.Target, Connected: r.Connected, State: r.Status["state"],
		LastError: r.Status["last_error"]}
	if r.Role != nil {
		c.Role = *r.Role
	}
	return c
}

// counters reads the ports' counters, by port name: Interface.statistics in
// ovs-vswitchd.conf.db(5).
func (s *Switches) counters(ctx context.Context) (map[string]map[string]uint64, error) {
	t := transaction{db: s.db, ops: []ovsdb.Operation{{Op: ovsdb.OperationSelect, Table: "Interface",
		Columns: []string{"name", "statistics"}}}}
	results, err := t.commit(ctx)
	if err != nil {
		return nil, err
	}
	all := make(map[string]map[string]uint64, len(results[0].Rows))
	for _, row := range results[0].Rows {
		name, _ := row["name"].(string)
		statistics, _ := row["statistics"].(ovsdb.OvsMap)
		all[name] = make(map[string]uint64, len(statistics.GoMap))
		for key, value := range statistics.GoMap {
			k, _ := key.(string)
			if v, ok := value.(float64); ok && k != "" {
				all[name][k] = uint64(v)
			}
		}
	}
	return all, nil
}

// WaitConnected waits until each of the bridges is connected to one of its controllers. If ctx ends
// first, the error names every bridge that is not, and why.
func (s *Switches) WaitConnected(ctx context.Context, bridges []string) error {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		start := time.Now()
		err := s.refresh(ctx)
		if err == nil {
			if err = s.disconnected(context.WithoutCancel(ctx), bridges); err == nil {
				return nil
			}
		}
		select {
		case <-time.After(max(pause, time.Since(start))): // asking may cost the switches more time than we wait
		case <-ctx.Done():
			return errors.Join(s.disconnected(context.WithoutCancel(ctx), bridges), ctx.Err())
		}
		if err := s.Check(); err != nil {
			return err
		}
	}
}

// disconnected returns an error that says which bridges have no controller, or nil.
func (s *Switches) disconnected(ctx context.Context, bridges []string) error {
	have, err := readTables(ctx, s.db)
	if err != nil {
		return err
	}
	byName := map[string]*bridgeRow{}
	for _, row := range have.bridges {
		byName[row.Name] = row
	}
	var errs []error
	for _, name := range bridges {
		if byName[name] == nil {
			errs = append(errs, fmt.Errorf("there is no switch %s", name))
			continue
		}
		errs = append(errs, byName[name].disconnected(have))
	}
	return errors.Join(errs...)
}

func (r *bridgeRow) disconnected(have tables) error {
	if len(r.Controllers) == 0 {
		return fmt.Errorf("switch %s has no controller", r.Name)
	}
	var why []string
	for _, uuid := range r.Controllers {
		c := have.controllers[uuid].status()
		if c.Connected {
			return nil
		}
		why = append(why, c.Target+": "+cmp.Or(strings.ToLower(c.LastError), "no answer"))
	}
	slices.Sort(why)
	return fmt.Errorf("switch %s did not connect to its controller %s", r.Name, strings.Join(why, ", "))
}

// Flows returns the bridge's flow table as ovs-ofctl dump-flows prints it.
func (s *Switches) Flows(ctx context.Context, bridge string) (string, error) {
	return s.ofctl(ctx, bridge, "", "dump-flows")
}

// ofctl runs a command of ovs-ofctl on a bridge, with an input.
func (s *Switches) ofctl(ctx context.Context, bridge, input, command string, more ...string) (string, error) {
	ofctl := findProgram("ovs-ofctl")
	if ofctl == "" {
		return "", errors.New("ovs-ofctl: not found; " + installHint)
	}
	versions := "OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15"
	args := append([]string{"-vsyslog:off", "-O", versions, command, "unix:" + filepath.Join(s.dir, bridge+".mgmt")},
		more...)
	cmd := exec.CommandContext(ctx, ofctl, args...)
	var complaint strings.Builder
	cmd.Stdin, cmd.Stderr = strings.NewReader(input), &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("flows of %s: %w: %s", bridge, err, strings.TrimSpace(complaint.String()))
	}
	return string(out), nil
}

// ForgetAddresses flushes the learned addresses of all bridges: after a change of the spanning
// tree, they may lead into a dead end.
func (s *Switches) ForgetAddresses(ctx context.Context) error {
	_, err := s.vswitch.call(ctx, "fdb/flush")
	return err
}

// ForgetDecisions makes Open vSwitch decide again about every flow under way. Otherwise a flow that
// it dropped for want of an OpenFlow 1.0 controller would still be dropped once there is one, for
// as long as its packets keep coming.
func (s *Switches) ForgetDecisions(ctx context.Context) error {
	_, err := s.vswitch.call(ctx, "revalidator/purge")
	return err
}

// Settle waits until no packet is forwarded as configured before the last Apply: ovs-vswitchd
// revalidates cached flows some time after a change. revalidator/wait returns at the end of a
// round, and the first round may have begun before the change. In user space, Settle flushes the
// cached flows instead, as setting them up again does not delay packets there.
func (s *Switches) Settle(ctx context.Context) error {
	if s.datapath == Netdev {
		return s.ForgetDecisions(ctx)
	}
	for range 2 {
		if _, err := s.vswitch.call(ctx, "revalidator/wait"); err != nil {
			return err
		}
	}
	return nil
}
