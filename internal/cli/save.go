package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"

	"trivet.dev/trivet/internal/asuser"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/trivet"
)

func (a *app) save() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "save [FILE] [NODE...]",
		Short: "Write what was configured by hand into the topology's file",
		Long: "Write what somebody has configured by hand in a running lab into its file, so that the next up gives the same lab:\n" +
			"links as they are now, addresses and routes of hosts and Linux routers, flow entries of switches, rules of iptables\n" +
			"and nft, files that containers were given. With nodes, what is theirs and that of their links.\n\n" +
			"Without FILE it is the file that the lab came from, whose comments and layout stay. Any other FILE is written anew,\n" +
			"as it must be if the lab came from a generator or a file in another format. What a topology has no words for goes\n" +
			"into files in a directory beside FILE, which nodes name as their config.",
		Example: "  trivet save --dry-run\n  trivet save\n  trivet save lab.yaml s1 h1",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, state, err := a.client()
			if err != nil {
				return err
			}
			info, err := c.Info(cmd.Context())
			if err != nil {
				return err
			}
			s := &saving{lab: info.Topology, present: map[string]lab.Present{}, nodes: map[string]bool{}}
			file, err := s.arguments(args, state)
			if err != nil {
				return err
			}
			all, err := c.Present(cmd.Context(), nil)
			if err != nil {
				return err
			}
			for _, p := range all {
				s.present[p.Node] = p
			}
			if err := s.begin(file); err != nil {
				return err
			}
			if err := s.change(); err != nil {
				return fmt.Errorf("%s: %w\nnothing was changed", file, err)
			}
			return a.finishSave(s, dryRun)
		},
	}
	cmd.ValidArgsFunction = a.completeNodes
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be written")
	return cmd
}

// saving is a file that is being changed to match a lab.
type saving struct {
	lab     *topology.Topology
	present map[string]lab.Present
	nodes   map[string]bool // to save; nil: all

	from      string // the file that the lab came from, or ""
	file      string
	isNew     bool // there is no such file yet
	was       []byte
	text      []byte
	first     *topology.Topology           // the file's topology before, resolved
	files     []savedFile                  // next to it
	datapaths map[string]topology.Datapath // by node, from the file alone, without up's flags and devices
	said      []Saved
	left      []string
}

// savedFile is a file next to the topology's.
type savedFile struct {
	name, was, text string
	mode            os.FileMode // of a new one
	given           bool        // to a node: the mode of an existing file is also set
	wasMode         uint32      // before that
}

// put adds a file to those to be written, once.
func (s *saving) put(f savedFile) {
	if i := slices.IndexFunc(s.files, func(has savedFile) bool { return has.name == f.name }); i >= 0 {
		f.was = s.files[i].was
		s.files[i] = f
		return
	}
	s.files = append(s.files, f)
}

// Saved is something that was written.
type Saved struct {
	Subject string `json:"subject"` // a node or link
	What    string `json:"what"`
}

func (s *saving) say(subject, format string, args ...any) {
	one := Saved{subject, fmt.Sprintf(format, args...)}
	if !slices.Contains(s.said, one) {
		s.said = append(s.said, one)
	}
}

func (s *saving) leave(subject, format string, args ...any) {
	what := subject + ": " + fmt.Sprintf(format, args...)
	if !slices.Contains(s.left, what) {
		s.left = append(s.left, what)
	}
}

func (s *saving) has(node string) bool { return len(s.nodes) == 0 || s.nodes[node] }

// arguments returns the file to write; other words are nodes.
func (s *saving) arguments(args []string, state lab.State) (file string, err error) {
	s.from = state.File()
	for i, word := range args {
		switch {
		case s.lab.Node(word) != nil:
			s.nodes[word] = true
		case i == 0:
			file = word
		default:
			var names []string
			for _, n := range s.lab.Nodes {
				names = append(names, n.Name)
			}
			return "", fmt.Errorf("there is no node %s in lab %s; %s", word, state.Name,
				topology.DidYouMean(word, names))
		}
	}
	if file == "" {
		file = state.File()
		if state.Source == lab.OfExperiment || !isFile(file) {
			return "", fmt.Errorf("lab %s came from %s: name the file to write, as in  trivet save lab.yaml",
				state.Name, state.Source)
		}
	}
	format, err := formats.ForFile(file, nil)
	if err == nil && format.Name != formats.Own {
		if data, failed := os.ReadFile(file); failed == nil {
			format, err = formats.ForFile(file, data)
		}
	}
	if err != nil {
		return "", err
	}
	if format.Name != formats.Own {
		return "", fmt.Errorf("%s: %s has no words for what is saved: name another file, as in  trivet save lab.yaml",
			file, format.Title)
	}
	return file, nil
}

// begin reads the file, or begins a new one with the lab's topology.
func (s *saving) begin(file string) (err error) {
	s.file = file
	if err := mine(file); err != nil {
		return err
	}
	_, err = os.Stat(file)
	if s.isNew = errors.Is(err, os.ErrNotExist); s.isNew {
		t := s.lab.Clone()
		for _, n := range t.Nodes {
			n.Config = nil              // written into files of its own later
			for i, g := range n.Files { // as given; changes come later
				n.Files[i] = topology.NodeFile{Path: g.Path, TextFile: topology.TextFile{File: s.own(n, g.Path)}}
				s.put(savedFile{name: n.Files[i].File, text: g.Text, mode: os.FileMode(g.Mode), given: true})
			}
			if n.Guest != nil && n.Guest.UserData != (topology.TextFile{}) &&
				(n.Guest.UserData.File == "" || !s.sameDirectory()) {
				n.Guest.UserData = topology.TextFile{} // the lab does not reveal its content
				s.leave(n.Name, "user_data is not saved, as a lab does not show it: it is that of %s",
					cmp.Or(s.from, "the lab's own file"))
			}
			if n.RoutingNode() {
				n.Routes = slices.DeleteFunc(n.Routes, func(r topology.Route) bool { return r.Computed })
			}
		}
		t.RouterHops = 0
		var losses []formats.Loss
		if s.text, losses, err = trivet.Write(t); err != nil {
			return err
		}
		for _, l := range losses {
			s.leave(l.Subject, "%s is not saved", l.Field)
		}
	} else if err := asuser.Do(func() (err error) { s.was, err = os.ReadFile(file); return err }); err != nil {
		return err
	} else {
		s.text = s.was
	}
	s.first, err = s.resolved()
	if err != nil {
		return err
	}
	return s.sameNodes()
}

// sameDirectory says whether names of files mean the same in the new file as where the lab came
// from.
func (s *saving) sameDirectory() bool {
	a, errA := filepath.Abs(s.file)
	b, errB := filepath.Abs(s.from)
	return s.from != "" && errA == nil && errB == nil && filepath.Dir(a) == filepath.Dir(b)
}

// mine says why root must not replace a file: a link of somebody else must not be followed.
func mine(file string) error {
	info, err := os.Lstat(file)
	if err != nil || info.Mode()&os.ModeSymlink == 0 || os.Geteuid() != 0 || os.Getenv("SUDO_UID") != "" {
		return nil
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 {
		return fmt.Errorf("%s is a link of another user: name the file itself", file)
	}
	return nil
}

// resolved returns the current meaning of the text, with up's flags, which no file contains.
func (s *saving) resolved() (*topology.Topology, error) {
	t, problems := trivet.Read(s.file, s.text)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	if err := formats.ReadConfig(s.file, t, s.texts()).Err(); err != nil {
		return nil, err
	}
	s.datapaths = map[string]topology.Datapath{}
	if plain, problems := topology.Resolve(t, lab.Defaults); problems.Err() == nil {
		for _, n := range plain.Nodes {
			s.datapaths[n.Name] = n.Datapath
		}
	}
	t.Name, t.IPv6, t.Routes = s.lab.Name, s.lab.IPv6, s.lab.Routes
	was := s.lab.NodesByName()
	for _, n := range t.Nodes {
		if old := was[n.Name]; old != nil {
			n.Kind, n.Datapath, n.Controllers = old.Kind, old.Datapath, old.Controllers
		}
	}
	r, problems := topology.Resolve(t, lab.Defaults)
	return r, problems.Err()
}

// texts returns the contents of nodes' own files, by file: as first read, or as to be written.
func (s *saving) texts() map[string]formats.Beside {
	out := map[string]formats.Beside{}
	if s.first != nil {
		for _, n := range s.first.Nodes {
			for _, c := range n.Config {
				out[c.File] = formats.Beside{Text: c.Text}
			}
			for _, f := range n.Files {
				out[f.File] = formats.Beside{Text: f.Text, Mode: f.Mode}
			}
		}
	}
	for _, f := range s.files {
		out[f.name] = formats.Beside{Text: f.text, Mode: uint32(f.mode)}
	}
	return out
}

// sameNodes says why a file is not the lab's.
func (s *saving) sameNodes() error {
	hint := "bring the lab to it first:  trivet apply " + s.file + ", or save to another file"
	for _, n := range s.lab.Nodes {
		if s.first.Node(n.Name) == nil {
			return fmt.Errorf("%s has no node %s, which the lab has; %s", s.file, n.Name, hint)
		}
	}
	have, want := topology.LinksByKey(s.first), topology.LinksByKey(s.lab)
	for key, l := range want {
		if have[key] == nil {
			return fmt.Errorf("%s has no link %s, which the lab has; %s", s.file, l.Name(), hint)
		}
	}
	if len(s.first.Nodes) != len(s.lab.Nodes) || len(have) != len(want) {
		return fmt.Errorf("%s has nodes or links that the lab does not have; %s", s.file, hint)
	}
	return nil
}

// change changes the text to match the lab. A change may require others, as what is given decides
// what is assigned and computed: it ends when nothing differs, or nothing helps.
func (s *saving) change() error {
	if err := s.links(); err != nil {
		return err
	}
	if err := errors.Join(s.configs(), s.given()); err != nil {
		return err
	}
	for range 8 {
		before := s.text
		r, err := s.resolved()
		if err != nil {
			return err
		}
		for _, n := range r.Nodes {
			if err := s.network(r, n); err != nil {
				return err
			}
		}
		if bytes.Equal(before, s.text) {
			return s.remaining(r)
		}
	}
	r, err := s.resolved()
	if err != nil {
		return err
	}
	return s.remaining(r)
}

// links writes the current links.
func (s *saving) links() error {
	now := topology.LinksByKey(s.lab)
	for i, key := range topology.LinkKeys(s.first) {
		file, is := s.first.Links[i], now[key]
		if !s.has(file.Ends[0].Node) && !s.has(file.Ends[1].Node) {
			continue
		}
		change, ok := linkChange(file, is)
		if !ok {
			s.leave("link "+is.Name(),
				"its directions differ from each other in another way than in the file: not saved")
			continue
		}
		if change == (topology.LinkChange{}) {
			continue
		}
		text, err := trivet.SetLink(s.text, file.Ends[0].Label(), file.Ends[1].Label(), change)
		if err != nil {
			return err
		}
		s.text = text
		s.say("link "+is.Name(), "%s", change)
	}
	return nil
}

// linkChange returns the change that turns a link of a file into the lab's; false if none does.
func linkChange(file, is *topology.Link) (topology.LinkChange, bool) {
	if file.Ends[0].Label() != is.Ends[0].Label() {
		is = is.Clone()
		is.Ends[0], is.Ends[1] = is.Ends[1], is.Ends[0]
	}
	return topology.Between(file, is)
}

// beside is the directory for files of nodes.
func (s *saving) beside() string {
	return strings.TrimSuffix(filepath.Base(s.file), filepath.Ext(s.file)) + ".d"
}

// own returns the file there for one that a node is given at a path. (An asterisk would be replaced
// by the node's name.)
func (s *saving) own(n *topology.Node, path string) string {
	return filepath.Join(s.beside(), n.Name, strings.ReplaceAll(path, "*", "_"))
}

// configs writes the nodes' own configurations.
func (s *saving) configs() error {
	for _, n := range s.first.Nodes {
		if !s.has(n.Name) {
			continue
		}
		p := s.present[n.Name]
		for _, what := range p.Remarks {
			s.leave(n.Name, "%s", what)
		}
		list, changed := slices.Clone(n.Config), false
		var change trivet.NodeChange
		for _, c := range p.Config {
			own := filepath.Join(s.beside(), n.Name+"."+c.Kind)
			i := slices.IndexFunc(list, func(f topology.ConfigFile) bool { return f.Kind == c.Kind })
			switch {
			case i < 0 && c.Text == "" || i >= 0 && list[i].Text == c.Text:
				continue
			case i >= 0 && c.Text == "":
				s.say(n.Name, "%s: none (%s is not used any more)", c.Kind, cmp.Or(list[i].File, "its text"))
				list, changed = slices.Delete(list, i, i+1), true
				continue
			case i < 0:
				list = append(list, topology.ConfigFile{Kind: c.Kind})
				i = len(list) - 1
				// Otherwise the file would be refused.
				if c.Kind == string(topology.OVS) && s.datapaths[n.Name] != topology.OVS {
					change.Datapath = &n.Datapath
					s.say(n.Name, "datapath: %s", n.Datapath)
				}
			}
			if list[i].File == "" { // or its text is in the topology's file
				list[i].File, list[i].Text, changed = own, "", true
			}
			if s.shared(n, list[i].File, "") { // another node's file stays as it is
				list[i].File, changed = own, true
			}
			mode := os.FileMode(0o644)
			if c.Kind == topology.ConfigFRR || c.Kind == topology.ConfigBIRD { // these contain keys
				mode = 0o600
			}
			s.put(savedFile{name: list[i].File, was: list[i].Text, text: c.Text, mode: mode})
			s.say(n.Name, "%s: %s", c.Kind, list[i].File)
		}
		if !changed {
			continue
		}
		for i := range list {
			if list[i].File != "" {
				list[i].Text = "" // the topology's file does not have it
			}
		}
		change.Config = &list
		text, err := trivet.SetNode(s.text, n.Name, change)
		if err != nil {
			return err
		}
		s.text = text
	}
	return nil
}

// shared says whether a file is also another node's, or given to the same node at another path.
func (s *saving) shared(n *topology.Node, file, path string) bool {
	return slices.ContainsFunc(s.first.Nodes, func(other *topology.Node) bool {
		same := other.Name == n.Name
		return !same && slices.ContainsFunc(other.Config, func(o topology.ConfigFile) bool { return o.File == file }) ||
			slices.ContainsFunc(other.Files,
				func(o topology.NodeFile) bool { return o.File == file && !(same && o.Path == path) })
	})
}

// given writes the files that nodes were given, with their current contents.
func (s *saving) given() error {
	for _, n := range s.first.Nodes {
		if !s.has(n.Name) {
			continue
		}
		list, changed := slices.Clone(n.Files), false
		for i, was := range list {
			p := s.present[n.Name].Files
			at := slices.IndexFunc(p, func(f topology.NodeFile) bool { return f.Path == was.Path })
			if at < 0 {
				continue
			}
			now := p[at]
			now.Mode &^= othersWrite &^ was.Mode // a mode in a node grants others nothing here
			switch {
			case now.Mode&ownerReads == 0:
				s.leave(n.Name, "%s can be read by nobody (mode %04o): it is not saved", was.Path, now.Mode)
				continue
			case now.String() == was.String():
				continue
			}
			switch {
			case was.File == "" && now.InText():
				list[i].Text, changed = now.Text, true
				s.say(n.Name, "%s: the text in the file", was.Path)
				continue
			case was.File == "" || s.shared(n, was.File, was.Path):
				list[i].File, list[i].Text, changed = s.own(n, was.Path), "", true
			}
			s.put(savedFile{name: list[i].File, was: was.Text, text: now.Text, mode: os.FileMode(now.Mode), given: true,
				wasMode: was.Mode})
			s.say(n.Name, "%s: %s", was.Path, list[i].File)
		}
		for i := range list {
			if list[i].Mode = 0; list[i].File != "" {
				list[i].Text = ""
			}
		}
		if !changed {
			continue
		}
		text, err := trivet.SetNode(s.text, n.Name, trivet.NodeChange{Files: &list})
		if err != nil {
			return err
		}
		s.text = text
	}
	return nil
}

// Permissions of a file.
const (
	ownerReads  = 0o400
	othersWrite = 0o022
)

// finishSave shows what is to be written, and writes it.
func (a *app) finishSave(s *saving, dryRun bool) error {
	nothing := !s.isNew && len(s.files) == 0 && bytes.Equal(s.was, s.text)
	if s.isNew {
		s.say(s.file, "the lab as it is, in a new file")
	}
	if a.json {
		left := append([]string{}, s.left...)
		if nothing {
			s.said = nil
		}
		if err := a.printJSON(map[string]any{"file": s.file, "saved": append([]Saved{}, s.said...), "left_out": left,
			"dry_run": dryRun}); err != nil {
			return err
		}
	} else {
		for _, what := range s.left {
			a.say("%s", what)
		}
	}
	switch {
	case nothing:
		a.say("nothing to save: %s gives this lab", s.file)
		return nil
	case dryRun && !a.json:
		return s.diff(a)
	case dryRun:
		return nil
	}
	if err := asuser.Do(s.write); err != nil {
		return fmt.Errorf("%w\n%s was not changed", err, s.file)
	}
	if !a.json {
		for _, one := range s.said {
			a.say("%s  %s", one.Subject, one.What)
		}
		a.say("saved in %s", s.file)
	}
	return nil
}

// diff shows how files would change.
func (s *saving) diff(a *app) error {
	for _, f := range append(slices.Clone(s.files),
		savedFile{name: filepath.Base(s.file), was: string(s.was), text: string(s.text)}) {
		if f.given && f.wasMode != 0 && f.wasMode != uint32(f.mode) {
			fmt.Fprintf(a.out, "%s: mode %04o → %04o\n", harmlessText(f.name), f.wasMode, f.mode)
		}
		if f.was == f.text {
			continue
		}
		text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: difflib.SplitLines(f.was),
			B: difflib.SplitLines(f.text), FromFile: f.name, ToFile: f.name, Context: 2})
		if err != nil {
			return err
		}
		fmt.Fprint(a.out, harmlessText(text))
	}
	return nil
}

// write writes the files of nodes, and then the topology's, which names them.
func (s *saving) write() error {
	root, err := os.OpenRoot(filepath.Dir(s.file))
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range s.files {
		if dir := filepath.Dir(f.name); dir != "." {
			if err := root.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		if err := replaceBelow(root, f.name, f.text, f.mode, f.given); err != nil {
			return err
		}
	}
	if s.isNew {
		return replaceBelow(root, filepath.Base(s.file), string(s.text), 0o644, false)
	}
	if bytes.Equal(s.was, s.text) {
		return nil
	}
	return replaceFile(s.file, s.text)
}

// replaceBelow replaces or makes a file below a directory, without following links out of it. A new
// file gets the mode; an existing one keeps its own, unless exact is set.
func replaceBelow(root *os.Root, name, text string, mode os.FileMode, exact bool) error {
	if info, err := root.Lstat(name); err == nil {
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file", name)
		}
		if !exact {
			mode = info.Mode().Perm()
		}
	}
	next := fmt.Sprintf("%s.%08x.new", name, rand.Uint32())
	f, err := root.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if exact { // whatever the umask
		err = errors.Join(err, f.Chmod(mode))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = root.Rename(next, name)
	}
	if err != nil {
		_ = root.Remove(next)
	}
	return err
}
