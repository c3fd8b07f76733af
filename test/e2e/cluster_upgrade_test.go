package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/lab"
)

// versions are those of the members, as each of them says that all are; none: they do not agree.
func (f *sharedLab) versions() string {
	f.t.Helper()
	f.agreed()
	var out []string
	for _, asked := range []string{"a", "b", "c"} {
		s, _ := f.memberStatus(asked)
		var said []string
		for _, m := range s.Members {
			said = append(said, m.Name+" "+m.Version)
		}
		out = append(out, strings.Join(said, ", "))
	}
	if out = slices.Compact(out); len(out) != 1 {
		return ""
	}
	return out[0]
}

// TestClusterUpgrade proves that a lab's members are upgraded to another build, one after the other
// under traffic, and back, without the loss of a packet of an installed flow; that members of two
// versions work together; that a command of another version than the daemon does it; that a program
// which is none changes nothing, and one that cannot be a member is taken back, with who runs what;
// that Ctrl-C, the death of a member and the daemon's leave a cluster that works, by the programs
// that it had; and that down leaves nothing.
func TestClusterUpgrade(t *testing.T) {
	t.Parallel()
	other := otherVersion(t, "other")
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			f, before := newSharedLab(t, datapath)
			old := strings.Fields(strings.Split(f.versions(), ",")[0])[1]
			all := func(a, b, c string) string { return fmt.Sprintf("a %s, b %s, c %s", a, b, c) }
			want := func(versions string) {
				t.Helper()
				if got := f.versions(); got != versions {
					t.Errorf("members run %s, not %s", got, versions)
				}
			}
			address := f.addressOf("h4", false)

			contains(t, f.want(1, "cluster", "upgrade", "--program", "/bin/true").err, "does not say, by --version, that it is trivet")
			contains(t, f.want(1, "cluster", "upgrade", "d").err, `there is no member "d"; there are a, b, c`)
			contains(t, f.want(1, "cluster", "upgrade", "--api", "unix:/nowhere").err, "end one with SIGTERM")
			want(all(old, old, old))

			for _, step := range []struct {
				by   string
				args []string
				then string
			}{
				{other, []string{"b"}, all(old, "other", old)},
				{other, nil, all("other", "other", "other")},
				{other, []string{"--program", trivet}, all(old, old, old)},
			} {
				end := f.traffic("h1", address)
				r := f.do(f.command(step.by, append([]string{"cluster", "upgrade", "--json"}, step.args...)...))
				known, _ := end()
				if r.code != 0 {
					t.Fatal(r)
				}
				if known.Lost > 0 {
					t.Errorf("%v: of an installed flow %d of %d packets are lost", step.args, known.Lost, known.Sent)
				}
				var steps []lab.UpgradeStep
				must(t, json.Unmarshal([]byte(r.out), &steps))
				for _, s := range steps {
					if s.What != lab.UpgradeBegun && s.What != lab.UpgradeDone {
						t.Errorf("a step is %+v", s)
					}
				}
				want(step.then)
				f.pingAll(12)
			}

			bad := f.file("bad", "#!/bin/sh\n[ \"$1\" != --version ] || exec echo trivet version bad\necho it is broken\nexit 3\n")
			f.sh("chmod 755 " + bad)
			f.do(f.command(other, "cluster", "upgrade", "a"))
			end := f.traffic("h1", address)
			contains(t, f.want(1, "cluster", "upgrade", "--program", bad, "a", "b").err, "the upgrade has stopped at member a", "it is broken",
				"it runs the program again that it had", "upgraded to bad: no member; not upgraded: a, b")
			if known, _ := end(); known.Lost > 0 {
				t.Errorf("while a bad program is tried, %d of %d packets are lost", known.Lost, known.Sent)
			}
			want(all("other", old, old))

			f.programs = f.clusterPrograms()
			f.signal("KILL", "member a")
			f.programs = f.clusterRuns(f.programs, "member a")
			want(all("other", old, old))

			interrupted := f.command(other, "cluster", "upgrade", "b", "c")
			out := f.startOutput(interrupted)
			eventually(t, "b is begun", func() bool { return strings.Contains(out.String(), "b  "+old) })
			must(t, interrupted.Process.Signal(unix.SIGINT))
			_ = interrupted.Wait()
			contains(t, out.String(), "interrupted: the lab's daemon finishes the member that was begun")
			eventually(t, "b is finished, and c not begun", func() bool { return f.versions() == all("other", "other", old) })

			eventually(t, "the upgrade that was interrupted has ended", func() bool {
				return !strings.Contains(f.want(1, "cluster", "upgrade", "--program", "/bin/true").err, "is being upgraded already")
			})
			killed := f.command(other, "cluster", "upgrade", "c")
			out = f.startOutput(killed)
			eventually(t, "c is begun", func() bool { return strings.Contains(out.String(), "c  "+old) })
			f.killDaemon()
			_ = killed.Wait()
			contains(t, out.String(), "has ended without an answer")
			f.ok("resume")
			eventually(t, "all run", func() bool {
				v := f.versions()
				return v == all("other", "other", old) || v == all("other", "other", "other")
			})
			f.programs = f.clusterPrograms()
			f.signal("KILL", "member b") // that this daemon has taken over
			f.programs = f.clusterRuns(f.programs, "member b")
			eventually(t, "b is as it was", func() bool { return strings.Contains(f.versions(), "b other") })
			f.pingAll(12)
			f.ok("down")
			f.unchanged(before)
		})
	}
}
