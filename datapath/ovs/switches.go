// Package ovs runs a private Open vSwitch for a lab: an ovsdb-server and an ovs-vswitchd of the
// lab's own, in the lab's network namespace, with database, sockets, pid files and logs in a
// directory of the lab. It never talks to the machine's own Open vSwitch, if there is one.
//
// The daemons outlive the process that starts them: Attach finds them again by the directory alone.
// The bridges are given as a whole (Apply), and only what differs from the present ones is touched.
package ovs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"

	"trivet.dev/trivet/internal/disk"
	"trivet.dev/trivet/internal/inside"
)

// Config says where and how a private Open vSwitch runs.
type Config struct {
	Dir      string       // for its files, made if necessary; no two labs may share it
	NetNS    string       // path of the network namespace; empty: this process's
	Datapath DatapathType // of all bridges; empty: System if the kernel can, else Netdev

	// Prepare may change the commands before they start: a cgroup, a nice value. It is called on
	// the thread that starts them. It may be nil.
	Prepare func(*exec.Cmd)
}

// Switches is a running private Open vSwitch.
type Switches struct {
	dir      string
	datapath DatapathType
	server   *daemon // ovsdb-server
	vswitch  *daemon // ovs-vswitchd
	db       client.Client

	applying sync.Mutex        // one writer at a time
	asked    map[string]Bridge // by the last Apply: later changes are somebody else's
	known    bool              // asked is what the database has, except for others' changes
	sending  sync.Once         // makeRoomToSend

	changeLock sync.Mutex
	change     chan struct{} // closed at the next change of the database
}

// The path of a Unix socket has at most 107 bytes (unix(7)); the longest name is that of ovs-
// vswitchd's control socket, with the largest process id.
const maxDir = 107 - len("/ovs-vswitchd.4194304.ctl")

func open(dir string) (*Switches, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if len(dir) > maxDir {
		return nil, fmt.Errorf("%s: the path is too long for Unix sockets in it; choose a directory of at most %d characters", dir, maxDir)
	}
	return &Switches{
		dir:     dir,
		server:  &daemon{dir: dir, name: "ovsdb-server"},
		vswitch: &daemon{dir: dir, name: "ovs-vswitchd"},
		change:  make(chan struct{}),
	}, nil
}

func (s *Switches) socket() string { return filepath.Join(s.dir, "db.sock") }

// Start starts an Open vSwitch without bridges and returns when it is ready. It is an error if one
// is already running in the directory; what a dead one left there is removed. When Start fails,
// nothing is left running.
func Start(ctx context.Context, cfg Config) (*Switches, error) {
	p, err := findPrograms()
	if err != nil {
		return nil, err
	}
	s, err := open(cfg.Dir)
	if err != nil {
		return nil, err
	}
	for _, d := range []*daemon{s.server, s.vswitch} {
		if pid := d.pid(); pid != 0 {
			return nil, fmt.Errorf("an Open vSwitch is already running in %s (%s, process %d); attach to it or stop it",
				s.dir, d.name, pid)
		}
	}
	switch s.datapath = cfg.Datapath; s.datapath {
	case System, Netdev:
	case "":
		s.datapath = Info{Kernel: probeKernel()}.Datapath()
	default:
		return nil, fmt.Errorf("datapath type %q is neither %s nor %s", cfg.Datapath, System, Netdev)
	}
	if err := s.start(ctx, cfg, p); err != nil {
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *Switches) start(ctx context.Context, cfg Config, p programs) error {
	if err := s.createDatabase(ctx, cfg, p); err != nil {
		return err
	}
	if s.datapath == System {
		if err := waitForProcessorCount(ctx); err != nil {
			return err
		}
	}
	if err := s.server.start(cfg, p.server, "--remote=punix:"+s.socket(), filepath.Join(s.dir, "conf.db")); err != nil {
		return err
	}
	if err := s.waitSocket(ctx); err != nil {
		return err
	}
	if err := s.vswitch.start(cfg, p.vswitch, append(s.datapath.options(), "unix:"+s.socket())...); err != nil {
		return err
	}
	var err error
	if s.db, err = connect(ctx, s.socket(), s.changed); err != nil {
		return err
	}
	root := &rootRow{
		NextConfig:  1,
		OtherConfig: map[string]string{statsInterval: statsIntervals[0]},
		ExternalIDs: map[string]string{datapathID: string(s.datapath)},
	}
	t := transaction{db: s.db}
	t.create(root)
	if _, err := t.commit(ctx); err != nil {
		return err
	}
	return s.waitConfig(ctx, 1)
}

// datapathID is the key in Open_vSwitch's external_ids in which Attach finds the datapath type.
const datapathID = "trivet-datapath"

func (s *Switches) createDatabase(ctx context.Context, cfg Config, p programs) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	database := filepath.Join(s.dir, "conf.db")
	old := []string{database, s.socket(), s.server.file(".pid"), s.vswitch.file(".pid")}
	for _, sockets := range []string{"*.mgmt", "*.ctl"} {
		found, err := filepath.Glob(filepath.Join(s.dir, sockets))
		if err != nil {
			return err
		}
		old = append(old, found...)
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	create := exec.CommandContext(ctx, p.tool, "-vsyslog:off", "create", database, p.schema)
	var said bytes.Buffer
	create.Stdout, create.Stderr = &said, &said
	err := inside.Namespace("", func() error {
		if cfg.Prepare != nil {
			cfg.Prepare(create)
		}
		return create.Run()
	})
	if err != nil {
		return fmt.Errorf("creating %s: %w: %s", database, err, said.String())
	}
	return nil
}

// waitForProcessorCount waits until the machine has been up for 10 s. Before that the daemon
// believes that there are no processors (it asks again every 10 s, counted from the start of the
// machine), and starts no handler thread for the kernel datapath, so every first packet is lost.
func waitForProcessorCount(ctx context.Context) error {
	select {
	case <-time.After(10*time.Second - uptime()):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting until the machine has been up for 10 s: %w", ctx.Err())
	}
}

func (s *Switches) waitSocket(ctx context.Context) error {
	for {
		conn, err := net.Dial("unix", s.socket())
		if err == nil {
			return conn.Close()
		}
		select {
		case <-time.After(time.Millisecond):
		case <-s.server.exited:
			return s.server.failure()
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", s.server.name, ctx.Err())
		}
	}
}

// Attach returns the Open vSwitch that is running in the directory. The error says which daemon is
// dead; StopDir ends the other.
func Attach(ctx context.Context, dir string) (*Switches, error) {
	s, err := open(dir)
	if err != nil {
		return nil, err
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	if s.db, err = connect(ctx, s.socket(), s.changed); err != nil {
		return nil, err
	}
	root, err := readRoot(ctx, s.db)
	if err != nil {
		s.Close()
		return nil, err
	}
	s.datapath = DatapathType(root.ExternalIDs[datapathID])
	return s, nil
}

// Close releases the daemons and leaves them running.
func (s *Switches) Close() {
	if s.db != nil {
		s.db.Close()
	}
}

// Datapath returns the datapath type of all bridges.
func (s *Switches) Datapath() DatapathType { return s.datapath }

// NeedsChecksums reports whether devices at the switches' ports must compute transport checksums
// themselves (transmit offload off): in user space, Open vSwitch passes packets on as they came, so
// a TCP segment whose checksum was left to the hardware arrives broken.
func (s *Switches) NeedsChecksums() bool { return s.datapath != System }

// Pids returns the process ids of the running daemons, for accounting.
func (s *Switches) Pids() []int {
	var pids []int
	for _, d := range []*daemon{s.server, s.vswitch} {
		if pid := d.pid(); pid != 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Check returns an error that says which daemon has died, with the end of its log.
func (s *Switches) Check() error {
	var errs []error
	for _, d := range []*daemon{s.server, s.vswitch} {
		if !d.alive() {
			errs = append(errs, d.failure())
		}
	}
	return errors.Join(errs...)
}

// Stop ends the Open vSwitch and returns when no process of it is left. Devices that were given to
// it stay; its own devices and its kernel state are removed.
func (s *Switches) Stop(ctx context.Context) error {
	s.Close()
	if s.datapath == System && s.vswitch.alive() {
		s.vswitch.call(ctx, "exit", "--cleanup") // if it does not answer, it is ended all the same
	}
	return errors.Join(s.vswitch.kill(ctx), s.server.kill(ctx))
}

// StopDir ends what runs in the directory, even if only one of the daemons does.
func StopDir(ctx context.Context, dir string) error {
	if s, err := Attach(ctx, dir); err == nil {
		return s.Stop(ctx)
	}
	s, err := open(dir)
	if err != nil {
		return err
	}
	return s.Stop(ctx)
}

func (s *Switches) changed() {
	s.changeLock.Lock()
	defer s.changeLock.Unlock()
	close(s.change)
	s.change = make(chan struct{})
}

func (s *Switches) nextChange() <-chan struct{} {
	s.changeLock.Lock()
	defer s.changeLock.Unlock()
	return s.change
}

// askAgain is after how long waitConfig raises the configuration's number again.
const askAgain = 2 * time.Second

// waitConfig waits until ovs-vswitchd has applied configuration number n. If the disk was full when
// ovs-vswitchd wanted to record that, it does not try again until it is asked to apply another
// number, so waitConfig raises the number again; if the disk is still full, the error says so.
func (s *Switches) waitConfig(ctx context.Context, n int) error {
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for {
		change := s.nextChange()
		root, err := readRoot(ctx, s.db)
		if err == nil && root.CurConfig >= n {
			return nil
		}
		select {
		case <-change:
		case <-again.C:
			t := transaction{db: s.db}
			t.raise(&root)
			if _, failed := t.commit(ctx); err == nil && failed != nil {
				return errors.Join(failed, disk.Full(s.dir))
			}
		case <-time.After(100 * time.Millisecond):
			if err := s.Check(); err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("%s has not applied the configuration: %w", s.vswitch.name, ctx.Err())
		}
	}
}
