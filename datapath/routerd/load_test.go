package routerd

import (
	"context"
	"errors"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// scene is a place where programs only seem to run.
type scene struct {
	files   map[string]string
	running map[string]string // their arguments, by name
	loaded  bool
	fails   string // the program, or the argument of the client, that fails; "": none

	did []string
}

func (s *scene) do(words ...string) { s.did = append(s.did, strings.Join(words, " ")) }

func (s *scene) Write(files map[string]string) (changed bool, err error) {
	for name, text := range files {
		changed = changed || s.files[name] != text
		s.files[name] = text
	}
	return changed, nil
}

func (s *scene) Start(programs []Program, all bool) (started []string, err error) {
	was := s.running
	s.running = map[string]string{}
	for _, p := range programs {
		args := strings.Join(p.Args, " ")
		if is, runs := was[p.Name]; all || !runs || is != args {
			started = append(started, p.Name)
		}
		s.running[p.Name] = args
	}
	if len(started) > 0 {
		s.do(append([]string{"start"}, started...)...)
	}
	if s.fails == "start" {
		s.running = was
		return nil, errors.New("one of them does not answer")
	}
	return started, nil
}

func (s *scene) Run(_ context.Context, command []string) (string, error) {
	s.do(command...)
	if s.fails != "" && strings.Contains(strings.Join(command, " "), s.fails) {
		return "", &Failure{Program: command[0], Said: "line 1: % Unknown command: frobnicate", Err: errors.New("exit status 1")}
	}
	return "shown", nil
}

func (s *scene) Free(old string) error {
	s.do("free", old)
	return nil
}

func (s *scene) Old() string  { return s.files[FRRFile] }
func (s *scene) Loaded() bool { return s.loaded }
func (s *scene) Forget()      { s.loaded = false }

func (s *scene) Note(string) error {
	s.loaded = true
	return nil
}

// TestLoading proves what becomes of a router's daemons with each version of its configuration: at
// first all start, and have it loaded; then one that is new has it loaded, and what differs is
// changed in those that run, or all are started anew where that fails or cannot be done; what has
// not changed is left alone; and after a failure all are started anew, whatever is loaded then.
func TestLoading(t *testing.T) {
	l := &Loading{Client: []string{"vtysh"}, Change: []string{"reload"}}
	s := &scene{files: map[string]string{}}
	programs := func(text string, names ...string) (out []Program) {
		for i, name := range names {
			p := Program{Name: name, Files: map[string]string{}}
			if i == 0 {
				p.Files[FRRFile] = text
			}
			out = append(out, p)
		}
		return out
	}
	for _, c := range []struct {
		text, daemons, fails string
		without              bool // frr-reload.py is not installed
		want                 string
	}{
		{"a", "zebra bgpd", "", false, "start zebra bgpd; free ; vtysh -b; vtysh -c show running-config"},
		{"a", "zebra bgpd", "", false, ""},
		{"b", "zebra bgpd", "", false, "reload; vtysh -c show running-config"},
		{"c", "zebra bgpd ripd", "", false, "start ripd; vtysh -d ripd -b; reload; vtysh -c show running-config"},
		{"d", "zebra bgpd", "reload", false, "reload; start zebra bgpd; free c; vtysh -b; vtysh -c show running-config"},
		{"e", "zebra bgpd", "", true, "start zebra bgpd; free d; vtysh -b; vtysh -c show running-config"},
		{"f", "zebra bgpd", "e", false, "reload; start zebra bgpd; free e; vtysh -b"}, // which has an e as well
		{"e", "zebra bgpd", "", false, "start zebra bgpd; free f; vtysh -b; vtysh -c show running-config"},
		{"g", "zebra bgpd ripd", "start", false, "start ripd"},
		{"g", "zebra bgpd ripd", "", false, "start zebra bgpd ripd; free g; vtysh -b; vtysh -c show running-config"},
	} {
		s.did, s.fails = nil, c.fails
		with := *l
		if c.without {
			with.Change = nil
		}
		if c.fails == "e" {
			with.Client = []string{"vtyshe"}
			c.want = strings.Replace(c.want, "vtysh", "vtyshe", 1)
		}
		err := with.Into(context.Background(), s, programs(c.text, strings.Fields(c.daemons)...))
		if got := strings.Join(s.did, "; "); got != c.want || (err != nil) != (c.fails == "e" || c.fails == "start") {
			t.Errorf("%s: %v, it did\n%s, not\n%s", c.text, err, got, c.want)
		}
		n := &topology.Node{Name: "r1", Config: []topology.ConfigFile{{Kind: topology.ConfigFRR, TextFile: topology.TextFile{File: "r1.conf", Text: "frobnicate\n"}}}}
		if c.fails == "e" && !strings.Contains(Explained(err, n).Error(), `r1.conf:1  frr of r1: "frobnicate": Unknown command`) {
			t.Errorf("it says %v", Explained(err, n))
		}
	}
}
