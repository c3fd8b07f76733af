package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	shared "trivet.dev/trivet/cluster"
	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/internal/asuser"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/internal/version"
)

// Members are upgraded one after the other. Each ends on SIGTERM, which makes it hand its switches
// over to the others, and its keeper starts it with the new program. So there is nothing to clean
// up when the daemon dies meanwhile: the next one takes over the members that run, and starts the
// others with the program that is recorded.

// UpgradeRequest asks for members of a lab's cluster to run another program.
type UpgradeRequest struct {
	Program string   `json:"program"`           // absolute; it is opened with the rights of the lab's owner
	Members []string `json:"members,omitempty"` // none: all
}

// UpgradeStep is a step of a member's upgrade, or the end of an upgrade.
type UpgradeStep struct {
	Member   string  `json:"member,omitempty"`
	What     string  `json:"what,omitempty"` // one of those below
	From     string  `json:"from,omitempty"` // version; empty: the member did not say
	To       string  `json:"to,omitempty"`
	Switches int     `json:"switches,omitempty"` // that it was master of
	Away     int     `json:"away,omitempty"`     // of these, those that another member has kept
	Seconds  float64 `json:"seconds,omitempty"`  // since it was begun
	Problem  string  `json:"problem,omitempty"`
	End      bool    `json:"end,omitempty"` // Problem says how
}

// Steps of a member's upgrade.
const (
	UpgradeBegun = "begun"
	UpgradeDone  = "upgraded"
	UpgradeBack  = "back" // it runs the program again that it had
	UpgradeLost  = "lost" // nor does it work with that
)

const upgradePath = "/v1/cluster/upgrade"

// executable is the program that a member is started from, in place of the daemon's own.
type executable struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`

	file *os.File // stays the same file when another takes its path
}

// openProgram opens a program with the rights of a lab's owner, as that user has named its path to
// a daemon that runs as root.
func openProgram(owner int, path string) (*executable, error) {
	var f *os.File
	err := asuser.As(owner, func() (err error) {
		f, err = os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	return newProgram(f, path)
}

func newProgram(f *os.File, path string) (*executable, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", path)
	}
	h := sha256.New()
	if err == nil {
		_, err = io.Copy(h, f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &executable{Path: path, SHA256: hex.EncodeToString(h.Sum(nil)), file: f}, nil
}

// open returns the program's file for one start; p may be nil, which means the daemon's program.
func (p *executable) open() (*os.File, error) {
	if p == nil {
		return os.Open("/proc/self/exe")
	}
	defer runtime.KeepAlive(p.file) // not closed if another program takes its place
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", p.file.Fd()))
}

// mostVersion limits, in bytes, what is read when a program is asked for its version.
const mostVersion = 4 << 10

// version asks a program for its version, as the user that it is to run as, so that a program that
// cannot run is found before any member ends.
func (p *executable) version(m *member) (string, error) {
	cmd, err := m.commandOf(p, []string{"--version"})
	if err != nil {
		return "", err
	}
	defer cmd.ExtraFiles[0].Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("%s cannot be run as user %d: %w", p.Path, m.place.UID, err)
	}
	kill := func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	var late atomic.Bool
	stop := patience.Version.AfterFunc(func() {
		late.Store(true)
		kill()
		out.Close() // a process outside its group may hold the other end
	})
	text, err := io.ReadAll(io.LimitReader(out, mostVersion))
	stop()
	kill() // processes that it may have left
	_ = cmd.Wait()
	if late.Load() {
		return "", fmt.Errorf("%s has not said its version, by --version, within %s", p.Path, patience.Version)
	}
	said, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "trivet version ")
	if err == nil && (!ok || said == "" || strings.ContainsAny(said, " \n")) {
		err = fmt.Errorf("%s does not say, by --version, that it is trivet", p.Path)
	}
	return said, err
}

func (c *cluster) programsFile() string { return filepath.Join(c.dir, "programs.json") }

// recorded returns the programs of the members that do not use the daemon's own, by member.
func (c *cluster) recorded() (map[string]executable, error) {
	out := map[string]executable{}
	text, err := os.ReadFile(c.programsFile())
	if errors.Is(err, os.ErrNotExist) {
		return out, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	return out, err
}

// setProgram sets and records the program that a member is started from next, also by a later
// daemon.
func (c *cluster) setProgram(m *member, p *executable) error {
	all, err := c.recorded()
	if err != nil {
		return err
	}
	delete(all, m.called)
	if p != nil {
		all[m.called] = *p
	}
	text, err := json.Marshal(all)
	if err == nil {
		err = replaceFor(os.Geteuid(), c.programsFile(), text)
	}
	if err == nil {
		m.program.Store(p)
	}
	return err
}

// findProgram has a member that is not running started from the recorded program, if that still
// exists; else from the daemon's own.
func (c *cluster) findProgram(d *daemon, m *member) {
	all, err := c.recorded()
	is, recorded := all[m.called]
	if err == nil && !recorded {
		return
	}
	var p *executable
	if err == nil {
		p, err = openProgram(c.owner, is.Path)
	}
	if err == nil && p.SHA256 != is.SHA256 {
		p.file.Close()
		err = fmt.Errorf("%s is another program by now", is.Path)
	}
	if err != nil {
		d.progress.warn(fmt.Sprintf("member %s: the program that it was upgraded to is not there; if it is to be started, it is from trivet %s: %v", m.called, version.Version, err))
		return
	}
	m.program.Store(p)
}

// keepProgram has a member that runs restarted, if it ends, from the program that it runs now.
func (c *cluster) keepProgram(m *member) error {
	running := m.process()
	if running == nil {
		return nil
	}
	exe := fmt.Sprintf("/proc/%d/exe", running.Pid)
	path, err := os.Readlink(exe)
	if err != nil {
		return nil // it has just ended
	}
	f, err := os.Open(exe)
	if err != nil {
		return nil
	}
	is, err := f.Stat()
	own, err2 := os.Stat("/proc/self/exe")
	if err := errors.Join(err, err2); err != nil {
		f.Close()
		return err
	}
	if os.SameFile(is, own) {
		f.Close()
		return c.setProgram(m, nil)
	}
	p, err := newProgram(f, strings.TrimSuffix(path, " (deleted)"))
	if err != nil {
		return err
	}
	return c.setProgram(m, p)
}

// serveUpgrade upgrades members, and reports each step in a line of JSON. If the client goes away,
// the upgrade stops before the next member.
func (d *daemon) serveUpgrade(w http.ResponseWriter, r *http.Request) {
	var in UpgradeRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, largestAnswer)).Decode(&in); err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	u, err := d.newUpgrade(in)
	if err != nil {
		writeProblem(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	defer u.c.upgrading.Unlock()
	encode := streamJSON(w)
	u.say = func(s UpgradeStep) { _ = encode(s) }
	end := UpgradeStep{End: true}
	if err := u.run(r.Context()); err != nil {
		end.Problem = err.Error()
		d.happened(end.Problem)
	}
	u.say(end)
}

// upgrading is an upgrade that is under way.
type upgrading struct {
	d       *daemon
	c       *cluster
	members []*member
	program *executable // nil: the daemon's
	version string
	say     func(UpgradeStep)
}

// newUpgrade checks an upgrade before anything is done; the error says why members cannot be
// upgraded. The caller unlocks the cluster's upgrading.
func (d *daemon) newUpgrade(in UpgradeRequest) (*upgrading, error) {
	if err := d.isUp(); err != nil {
		return nil, err
	}
	c := d.cluster.Load()
	if c == nil {
		return nil, errors.New("this lab has one controller, in its daemon; to have it run another version, take the lab down and up again")
	}
	u := &upgrading{d: d, c: c, members: c.list()}
	if len(in.Members) > 0 {
		u.members = nil
	}
	for _, name := range in.Members {
		m := c.member(name)
		if m == nil {
			return nil, fmt.Errorf("there is no member %q; there are %s", name, strings.Join(called(c.list()), ", "))
		}
		if !slices.Contains(u.members, m) {
			u.members = append(u.members, m)
		}
	}
	for _, m := range u.members {
		if m.far != nil {
			return nil, fmt.Errorf("member %s is at %s: members at other machines are not upgraded while the lab is up; take it down and up again", m.called, m.far.site)
		}
	}
	if !filepath.IsAbs(in.Program) {
		return nil, fmt.Errorf("program %q: name it from / on", in.Program)
	}
	if !c.upgrading.TryLock() {
		return nil, errors.New("the cluster is being upgraded already")
	}
	if err := u.open(in.Program); err != nil {
		c.upgrading.Unlock()
		return nil, err
	}
	return u, nil
}

func called(members []*member) []string {
	return lists.Map(members, func(m *member) string { return m.called })
}

// open opens the program, and checks that it can run.
func (u *upgrading) open(path string) error {
	p, err := openProgram(u.c.owner, path)
	if err != nil {
		return fmt.Errorf("the new program, read as the lab's owner: %w", err)
	}
	if u.version, err = p.version(u.members[0]); err != nil {
		p.file.Close()
		return err
	}
	u.program = p
	is, err := p.file.Stat()
	if own, err2 := os.Stat("/proc/self/exe"); err == nil && err2 == nil && os.SameFile(is, own) {
		u.program = nil
	}
	return nil
}

// run upgrades one member after the other.
func (u *upgrading) run(asked context.Context) error {
	for i, m := range u.members {
		if asked.Err() != nil {
			return u.stopped(i, errors.New("the upgrade was interrupted"))
		}
		if err := u.one(m); err != nil {
			return u.stopped(i, fmt.Errorf("the upgrade has stopped at member %s: %w", m.called, err))
		}
	}
	return nil
}

// stopped is the error of an upgrade that stopped halfway: it says why, and which members are
// upgraded.
func (u *upgrading) stopped(done int, why error) error {
	text := "no member"
	if done > 0 {
		text = strings.Join(called(u.members[:done]), ", ")
	}
	return fmt.Errorf("%w\n  upgraded to %s: %s; not upgraded: %s", why, u.version, text,
		strings.Join(called(u.members[done:]), ", "))
}

// one upgrades a member, or returns it to its earlier program if that fails.
func (u *upgrading) one(m *member) error {
	begin := time.Now()
	before, err := u.await(m, "", func(s shared.Status) string { return u.spared(m, s) })
	if err != nil {
		return fmt.Errorf("nothing of it has changed: %w", err)
	}
	was, old := memberOf(before, m.called), m.program.Load()
	step := UpgradeStep{Member: m.called, What: UpgradeBegun, From: was.Version, To: u.version, Switches: was.Mastered}
	u.say(step)
	fails := u.restart(m, u.program, u.version, was.Instance)
	if fails == nil {
		step.What, step.Away = UpgradeDone, u.giveBack(m, before)
		step.Seconds = time.Since(begin).Seconds()
		u.d.happened(fmt.Sprintf("member %s is upgraded from %s to %s", m.called, was.Version, u.version))
		u.say(step)
		return nil
	}
	step.Problem = fails.Error()
	if u.d.ctx.Err() != nil {
		return fails
	}
	step.What = UpgradeBack
	back := u.restart(m, old, was.Version, "")
	if back != nil {
		step.What = UpgradeLost
		fails = fmt.Errorf("%w\n  and with the program that it had: %w", fails, back)
	} else {
		step.Away = u.giveBack(m, before)
		fails = fmt.Errorf("%w\n  it runs the program again that it had", fails)
	}
	step.Seconds = time.Since(begin).Seconds()
	u.say(step)
	return fails
}

// restart ends a member, has it started from a program, and waits until it has recovered: a new
// process of that version is alive and connected to all switches, and each switch has a master.
func (u *upgrading) restart(m *member, p *executable, version, before string) error {
	if err := u.c.setProgram(m, p); err != nil {
		return err
	}
	ended := m.renew()
	ctx, cancel := patience.MemberEnd.Context(u.d.ctx)
	defer cancel()
	select {
	case <-ended:
	case <-ctx.Done():
		m.kill() // it hangs, or cannot hand over its switches
		select {
		case <-ended:
		case <-u.d.ctx.Done():
			return u.d.ctx.Err()
		}
	}
	_, err := u.await(m, m.called, func(s shared.Status) string {
		is := memberOf(s, m.called)
		switch {
		case !is.Alive:
			return "it is not alive"
		case is.Instance == before:
			return "it has not begun anew"
		case version != "" && is.Version != version: // it was being started when the program was set
			return fmt.Sprintf("it runs %s, not %s", is.Version, version)
		}
		return incomplete(s, "")
	})
	return err
}

// await polls the members until missing reports nothing, and returns the status that satisfied it.
// from names the member to ask; if empty, any member but m is.
func (u *upgrading) await(m *member, from string, missing func(shared.Status) string) (s shared.Status, err error) {
	ctx, cancel := patience.MemberWhole.Context(u.d.ctx)
	defer cancel()
	restarts := m.ended()
	for {
		what := "no member answers"
		for _, asked := range u.c.list() {
			if from == "" && asked == m && len(u.c.list()) > 1 || from != "" && asked.called != from {
				continue
			}
			now, err := asked.status(ctx)
			if err != nil {
				what = fmt.Sprintf("member %s does not answer: %v", asked.called, err)
				continue
			}
			if s, what = now, missing(now); what == "" {
				return s, nil
			}
			break
		}
		if from != "" && m.ended()-restarts >= hopeless {
			return s, fmt.Errorf("it ends again and again; the end of its log:\n%s", process.LastWords(m.log()))
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return s, fmt.Errorf("%s; the end of the log of member %s:\n%s", what, m.called, process.LastWords(m.log()))
		}
	}
}

// spared says why some switch would have no master if a member ended.
func (u *upgrading) spared(m *member, s shared.Status) string {
	if len(u.c.list()) == 1 || memberOf(s, m.called).Mastered == 0 && !memberOf(s, m.called).Alive {
		return "" // there is nobody to wait for, or nothing to lose
	}
	for _, other := range u.c.list() {
		if other != m && !memberOf(s, other.called).Alive {
			return fmt.Sprintf("member %s is not alive, which is to take over what this one has", other.called)
		}
	}
	return incomplete(s, m.called)
}

// incomplete says which connections to switches, or masters of them, are missing; the member but is
// ignored.
func incomplete(s shared.Status, but string) string {
	if s.Problem != "" {
		return "member " + s.Member + ": " + s.Problem
	}
	for _, m := range s.Members {
		if m.Name != but && m.Alive && m.Connected < len(s.Switches) {
			return fmt.Sprintf("member %s is connected to %d of %d switches", m.Name, m.Connected, len(s.Switches))
		}
	}
	for _, x := range s.Switches {
		if !memberOf(s, x.Master).Alive {
			return fmt.Sprintf("switch %s has no master that is alive", x.Switch)
		}
	}
	return ""
}

func memberOf(s shared.Status, name string) shared.MemberStatus {
	for _, m := range s.Members {
		if m.Name == name {
			return m
		}
	}
	return shared.MemberStatus{}
}

// giveBack makes a member the master again of the switches that it had, as far as possible, and
// returns how many stay with others: that is no defect, as the scheduling centre balances the load.
func (u *upgrading) giveBack(m *member, before shared.Status) (away int) {
	asked := map[string]bool{} // true once the member has heard of it
	ctx, cancel := patience.MemberAnswer.Context(u.d.ctx)
	defer cancel()
	for _, x := range before.Switches {
		if x.Master != m.called {
			continue
		}
		if _, err := m.api.MoveSwitch(ctx, api.ClusterMove{Switch: x.Switch, Member: m.called}); err != nil {
			logged(fmt.Sprintf("switch %s stays with another master than member %s: %v", x.Switch, m.called, err))
			away++
		} else {
			asked[x.Switch] = false
		}
	}
	refused, coming := away, 0
	_, _ = u.await(m, m.called, func(s shared.Status) string { // what stays is counted
		away, coming = refused, 0
		for _, x := range s.Switches {
			heard, ok := asked[x.Switch]
			switch {
			case !ok || x.Master == m.called:
			case x.Wanted == m.called: // until it is fulfilled, or forgotten
				asked[x.Switch] = true
				coming++
			case heard:
				away++
			default:
				coming++
			}
		}
		if coming > 0 {
			return fmt.Sprintf("%d switches are still to come", coming)
		}
		return ""
	})
	return away + coming
}

// Upgrade has members run another program, and calls each for every step.
func (c *Client) Upgrade(ctx context.Context, r UpgradeRequest, each func(UpgradeStep)) error {
	resp, err := c.request(ctx, http.MethodPost, upgradePath, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for lines := json.NewDecoder(c.said(resp)); ; {
		var s UpgradeStep
		if err := lines.Decode(&s); err != nil {
			return c.ended(ctx, err, io.EOF)
		}
		switch {
		case s.End && s.Problem != "":
			return errors.New(s.Problem)
		case s.End:
			return nil
		}
		each(s)
	}
}
