package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moby/moby/client"

	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/internal/disk"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// source says where an engine is found: at a socket on which it listens or, if Program is set, as a
// Podman that each lab runs at a socket of its own.
type source struct {
	Socket  string   `json:"socket"`
	Program []string `json:"program,omitempty"`
}

// sockets are the sockets of system-wide engines; the first that answers counts.
var sockets = []string{"/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock"}

// find returns the engine to be used on this machine: the one that DOCKER_HOST or CONTAINER_HOST
// names, as with Docker's and Podman's own programs, else one that listens, else Podman.
func find() (source, error) {
	for _, name := range []string{"DOCKER_HOST", "CONTAINER_HOST"} {
		at := os.Getenv(name)
		if at == "" {
			continue
		}
		path, local := strings.CutPrefix(at, "unix://")
		if !local {
			return source{}, topology.Mistaken("name a socket of this machine, unix:///run/docker.sock, or unset it",
				"%s is %s: the containers of a lab run on its own machine", name, at)
		}
		if err := answers(path); err != nil {
			return source{}, fmt.Errorf("the container engine that %s names: %w", name, err)
		}
		return source{Socket: path}, nil
	}
	for _, path := range sockets {
		if answers(path) == nil {
			return source{Socket: path}, nil
		}
	}
	podman, err := exec.LookPath("podman")
	if err != nil {
		return source{}, topology.Mistaken("apt install podman (or docker.io)",
			"containers need Docker or Podman, and neither is here")
	}
	return source{Program: append([]string{podman}, runtimeOf()...)}, nil
}

// Engine says which engine labs would use on this machine.
func Engine() (string, error) {
	s, err := find()
	switch {
	case err != nil:
		return "", err
	case len(s.Program) > 0:
		return s.Program[0] + ", started by each lab that needs it", nil
	}
	return "at " + s.Socket, nil
}

func answers(socket string) error {
	conn, err := net.DialTimeout("unix", socket, patience.Engine.Duration())
	if err == nil {
		err = conn.Close()
	}
	return err
}

// runtimeOf returns the options by which Podman uses runc in place of crun, its default, where crun
// refuses: with cgroups v1 and v2 side by side.
func runtimeOf() []string {
	runc, err := exec.LookPath("runc")
	if c, e := cgroup.Find(); err != nil || e != nil || !c.Hybrid() {
		return nil
	}
	return []string{"--runtime", runc}
}

// sourceFile records a lab's engine, before the engine is asked for anything.
func sourceFile(dir string) string { return filepath.Join(dir, "engine.json") }

func readSource(dir string) (s source, err error) {
	b, err := os.ReadFile(sourceFile(dir))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

func (s source) write(dir string) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return disk.Replace(sourceFile(dir), b, 0)
}

// socket is the socket of the engine of a lab in a directory.
func (s source) socket(dir string) string {
	if len(s.Program) > 0 {
		return filepath.Join(dir, "podman.sock")
	}
	return s.Socket
}

// open connects to the engine. A Podman that serves the lab alone is started by start, unless it
// answers; only root can reach it.
func (s source) open(dir string, start func(*exec.Cmd) error) (*client.Client, error) {
	socket := s.socket(dir)
	if len(s.Program) > 0 {
		if answers(socket) != nil {
			if err := s.serve(socket, start); err != nil {
				return nil, err
			}
		}
	}
	return client.New(client.WithHost("unix://" + socket))
}

// command returns a command of the Podman that serves a lab. It finds logins only in root's files:
// it runs as root, and would run helpers that another user's files name.
func (s source) command(ctx context.Context, words ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.Program[0], slices.Concat(s.Program[1:], words)...)
	cmd.Env = ownEnvironment()
	return cmd
}

func (s source) serve(socket string, start func(*exec.Cmd) error) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	cmd := s.command(context.Background(), "system", "service", "--time", "0", "unix://"+socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// Not a pipe to this process: the service would end at its next message after this process has
	// ended.
	said, err := os.OpenFile(socket+".log", os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer said.Close()
	cmd.Stderr = said
	if err := start(cmd); err != nil {
		return fmt.Errorf("start Podman's service: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := patience.Engine.Context(context.Background())
	defer cancel()
	for answers(socket) != nil {
		select {
		case err := <-ended:
			text, _ := os.ReadFile(said.Name())
			return fmt.Errorf("the service of Podman has ended: %w: %s", err, strings.TrimSpace(string(text)))
		case <-ctx.Done():
			_ = cmd.Process.Kill()
			return fmt.Errorf("the service of Podman: %w", context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}
