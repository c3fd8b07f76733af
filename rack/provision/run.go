package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/ansible"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// Run runs a playbook of the collection for a rack.
type Run struct {
	Playbook string // bootstrap, provision, update, reboot, shutdown
	Rack     *site.List
	User     *site.User // whose SSH keys and known hosts are used
	Devices  []string   // which; empty: all
	Roles    []string   // which; empty: all
	Check    bool       // only report what would change

	Passwords map[string]string         // by device; they are never written to a disk
	Variables map[string]map[string]any // further variables of the collection, by device
}

// config is Ansible's configuration; all others on the machine are ignored.
const config = `[defaults]
inventory = %[1]s/inventory.json
collections_path = %[1]s/collections
local_tmp = %[1]s/tmp
stdout_callback = trivet.rack.lines
host_key_checking = True
retry_files_enabled = False
localhost_warning = False
deprecation_warnings = False
interpreter_python = auto_silent
forks = 50
timeout = 20

[inventory]
enable_plugins = yaml

[ssh_connection]
pipelining = True
control_path_dir = %[1]s/ssh
ssh_args = -o ControlMaster=auto -o ControlPersist=10s -o ServerAliveInterval=10
`

// Do runs the playbook, calls tell for each event, and returns the outcome per device; failures of
// devices are no error.
func (r *Run) Do(ctx context.Context, tell func(Event)) ([]*Outcome, error) {
	program, err := find("ansible-playbook",
		"Ansible is what does this:  sudo apt install ansible-core  (2.14 or later), or  pipx install ansible-core")
	if err != nil {
		return nil, err
	}
	if len(r.Passwords) > 0 {
		if _, err := find("sshpass", "Ansible needs it for passwords:  sudo apt install sshpass"); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "trivet-rack-") // accessible to the user only
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := r.prepare(dir); err != nil {
		return nil, err
	}
	secret, err := inMemory(r.Passwords)
	if err != nil {
		return nil, err
	}
	defer secret.Close()
	cmd := exec.Command(program, r.arguments()...)
	cmd.Dir, cmd.Env = dir, environment(dir)
	cmd.ExtraFiles = []*os.File{secret} // descriptor 3, see fromMemory
	return r.follow(ctx, cmd, tell)
}

func find(program, cure string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%s is not installed\n  %s", program, cure)
	}
	return path, nil
}

// prepare writes the collection, the inventory and the configuration.
func (r *Run) prepare(dir string) error {
	inventory, err := r.inventory()
	if err != nil {
		return err
	}
	return errors.Join(
		os.CopyFS(filepath.Join(dir, "collections", "ansible_collections", "trivet", "rack"), ansible.Files),
		os.WriteFile(filepath.Join(dir, "inventory.json"), inventory, 0o600),
		os.WriteFile(filepath.Join(dir, "ansible.cfg"), fmt.Appendf(nil, config, dir), 0o600),
	)
}

func (r *Run) arguments() []string {
	out := []string{"trivet.rack." + r.Playbook}
	if len(r.Roles) > 0 {
		out = append(out, "--tags", strings.Join(r.Roles, ","))
	}
	if len(r.Devices) > 0 {
		names := slices.Clone(r.Devices)
		if i := slices.Index(names, Gateway); i >= 0 {
			names[i] = topology.Head
		}
		out = append(out, "--limit", strings.Join(names, ","))
	}
	if r.Check {
		out = append(out, "--check")
	}
	return out
}

// environment returns this process's environment without variables that configure Ansible.
func environment(dir string) (out []string) {
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "ANSIBLE_") && !strings.HasPrefix(e, "LC_") && !strings.HasPrefix(e, "LANG") {
			out = append(out, e)
		}
	}
	return append(out, "ANSIBLE_CONFIG="+filepath.Join(dir, "ansible.cfg"), "ANSIBLE_HOME="+dir, "LC_ALL=C.UTF-8")
}

// inMemory returns a file with the passwords that exists in memory only.
func inMemory(passwords map[string]string) (*os.File, error) {
	fd, err := unix.MemfdCreate("trivet-rack", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "passwords")
	if err := json.NewEncoder(f).Encode(passwords); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// mostMemory limits the address space of each of Ansible's processes, in bytes: ten times what one
// needs.
const mostMemory = 4 << 30

// follow runs the playbook and reads its output. The end of ctx sends an interrupt, so that it can
// close its connections.
func (r *Run) follow(ctx context.Context, cmd *exec.Cmd, tell func(Event)) ([]*Outcome, error) {
	errs := &site.Tail{}
	cmd.Stderr = errs
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true} // without a terminal ssh cannot prompt
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	// Ansible keeps all output of a device in memory, so each of its processes is limited.
	_ = unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: mostMemory, Max: mostMemory}, nil)
	defer context.AfterFunc(ctx, func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGINT)
		time.AfterFunc(5*time.Second, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	})()
	var is outcomes
	other, err := is.read(out, tell)
	if err != nil { // it would block until its output is read
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	}
	ended := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return is.of, ctx.Err()
	case err != nil:
		return is.of, err
	case !is.ended:
		said := strings.TrimSpace(strings.Join(other, "\n") + "\n" + errs.String())
		return is.of, fmt.Errorf("ansible-playbook has failed (%v):\n%s", ended, lastLines(said, 15))
	}
	return is.of, nil
}

func lastLines(s string, n int) string {
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
