package kathara

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"trivet.dev/trivet/internal/asuser"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// Limits on what is read from a lab's directory.
const (
	mostEntries = 10_000   // in all devices' directories together
	mostDepth   = 32       // of a directory in a device's
	mostText    = 16 << 20 // bytes that are looked through for line ends of Windows
)

// beside is what a lab's directory contains in addition to lab.conf.
type beside struct {
	root             *os.Root
	startup, stop    string // contents of shared.startup and shared.shutdown
	shared           bool   // there is a directory for all devices
	scripts          map[string]scripts
	folders          map[string]folder
	entries, checked int
}

// scripts are the scripts of one device.
type scripts struct{ startup, stop string }

// folder is a directory with a device's files.
type folder struct {
	there   bool
	windows []string // files with line ends of Windows
	below   []string // the commands of the entries of owned in which it has files
	astray  int      // symbolic links that lead out of it
}

// owned are directories in which Kathará changes the owner or the mode of a device's files, with
// the command that does so.
var owned = []struct{ dir, command string }{
	{"var/www", "chmod -R 777 /var/www/*"},
	{"etc/quagga", "chown -R quagga:quagga /etc/quagga && chmod 640 /etc/quagga/*"},
	{"etc/frr", "chown -R frr:frr /etc/frr && chmod 640 /etc/frr/*"},
}

// beside reads what the lab's directory contains for its devices, as the user who asked for the
// lab. Symbolic links that lead out of the directory are not followed.
func (r *reader) beside() {
	err := asuser.Do(func() error {
		root, err := os.OpenRoot(filepath.Dir(r.file))
		if err != nil {
			return err
		}
		defer root.Close()
		r.extra = &beside{root: root, scripts: map[string]scripts{}, folders: map[string]folder{}}
		r.directory()
		return nil
	})
	if err != nil {
		r.problems.Add(r.t.Pos, "", "the lab's directory: %s", err)
	}
}

func (r *reader) directory() {
	x := r.extra
	x.startup, x.stop = r.script("shared.startup"), r.script("shared.shutdown")
	switch info, err := x.root.Lstat("shared"); {
	case err != nil:
	case info.Mode()&fs.ModeSymlink != 0:
		r.problems.Add(r.at("shared", 0), "replace it by a directory", "shared is a symbolic link, and is not followed")
	default:
		x.shared = info.IsDir()
	}
	for _, d := range r.devices {
		x.scripts[d.Name] = scripts{r.script(d.Name + ".startup"), r.script(d.Name + ".shutdown")}
		x.folders[d.Name] = r.folder(d.Name)
	}
	if _, err := x.root.Lstat("kathara.conf"); err == nil {
		r.problems.Warn(r.at("kathara.conf", 0), "write what it says into "+fileName,
			"settings of Kathará have no effect")
	}
	r.dependencies()
	r.external()
}

// at returns the position of a line in another file of the lab.
func (r *reader) at(file string, line int) topology.Position {
	p := topology.Position{File: filepath.Join(filepath.Dir(r.file), file), Line: line}
	if line > 0 {
		p.Column = 1
	}
	return p
}

// text reads a file of the lab, with line ends as in Unix. It returns "" if there is no such file.
func (r *reader) text(file string) string {
	if _, err := r.extra.root.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	data, err := formats.ReadBelow(r.extra.root, file)
	if err != nil {
		r.problems.Add(r.at(file, 0), "replace it by a file of the lab's own", "%s", err)
		return ""
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	return strings.ReplaceAll(string(data), "\r\n", "\n")
}

func (r *reader) script(file string) string {
	text := r.text(file)
	if i := strings.IndexByte(text, 0); i >= 0 {
		r.problems.Add(r.at(file, 1+strings.Count(text[:i], "\n")), "remove it", "a script cannot hold a NUL character")
		return ""
	}
	return text
}

// folder looks through a directory with a device's files.
func (r *reader) folder(device string) (f folder) {
	x := r.extra
	info, err := x.root.Stat(device)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f
	case err != nil:
		r.problems.Add(r.at(device, 0), "replace it by a directory of the lab's own", "%s",
			cmp.Or(errors.Unwrap(err), err))
		return f
	case !info.IsDir():
		return f
	}
	if info, err := x.root.Lstat(device); err != nil || info.Mode()&fs.ModeSymlink != 0 {
		r.problems.Add(r.at(device, 0), "replace it by a directory",
			"the device's directory is a symbolic link, and is not followed")
		return f
	}
	err = fs.WalkDir(x.root.FS(), device, func(file string, entry fs.DirEntry, err error) error {
		x.entries++
		switch {
		case err != nil:
			r.problems.Add(r.at(file, 0), "", "%s", cmp.Or(errors.Unwrap(err), err))
			return fs.SkipDir
		case x.entries > mostEntries:
			r.problems.Add(r.at(device, 0), "leave out what no device needs",
				"the devices' directories hold more than %d files", mostEntries)
			return fs.SkipAll
		case strings.Count(file, "/") > mostDepth:
			r.problems.Add(r.at(file, 0), "", "it is more than %d directories deep", mostDepth)
			return fs.SkipAll
		}
		f.there = f.there || file != device
		return r.entry(device, file, entry, &f)
	})
	if err != nil {
		r.problems.Add(r.at(device, 0), "", "%s", cmp.Or(errors.Unwrap(err), err))
	}
	if more := f.astray - 1; more > 0 {
		r.problems.Warn(r.at(device, 0), "", "device %s: there are %d more symbolic links like that", device, more)
	}
	return f
}

func (r *reader) entry(device, file string, entry fs.DirEntry, f *folder) error {
	x := r.extra
	inside := strings.TrimPrefix(file, device+"/")
	switch kind := entry.Type(); {
	case kind.IsDir():
		return nil
	case kind == fs.ModeSymlink:
		to, err := x.root.Readlink(file)
		if target := path.Join(path.Dir(inside), to); err != nil || path.IsAbs(to) || target == ".." ||
			strings.HasPrefix(target, "../") {
			f.astray++
			if f.astray == 1 {
				r.problems.Warn(r.at(file, 0), "copy there what it leads to",
					"device %s: the symbolic link leads to %s, out of the device's directory, and is not followed: in the device it leads to what is there", device, formats.Clip(to))
			}
		}
		return nil
	case kind != 0:
		r.problems.Add(r.at(file, 0), "remove it", "it is neither a file nor a directory nor a symbolic link")
		return nil
	}
	for _, o := range owned {
		if strings.HasPrefix(inside, o.dir+"/") && !slices.Contains(f.below, o.command) {
			f.below = append(f.below, o.command)
		}
	}
	info, err := entry.Info()
	if err != nil || info.Size() > topology.MaxConfigFile || int64(x.checked)+info.Size() > mostText {
		return nil
	}
	x.checked += int(info.Size())
	data, err := formats.ReadBelow(x.root, file)
	if err != nil {
		r.problems.Add(r.at(file, 0), "let whoever runs the lab read it", "%s", err)
		return nil
	}
	if !slices.Contains(data, 0) && utf8.Valid(data) &&
		(bytes.Contains(data, []byte("\r\n")) || bytes.HasPrefix(data, []byte("\uFEFF"))) {
		f.windows = append(f.windows, "/"+inside)
	}
	return nil
}

var (
	dependency = regexp.MustCompile(`^(\w+):\s?((?:\w+\s*)+)$`)
	attachment = regexp.MustCompile(`^(\w+)\s+(\w[\w-]*)(\.\d+)?$`)
)

// lines calls f for each line of a file of the lab, except for blank lines and comments.
func (r *reader) lines(file string, f func(line string, pos topology.Position)) {
	number := 0
	for line := range strings.SplitSeq(r.text(file), "\n") {
		number++
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			f(line, r.at(file, number))
		}
		if r.enough(r.at(file, number)) {
			return
		}
	}
}

// dependencies reads lab.dep: which devices are started before which others.
func (r *reader) dependencies() {
	r.lines("lab.dep", func(line string, pos topology.Position) {
		match := dependency.FindStringSubmatch(line)
		if match == nil {
			r.problems.Add(pos, "write pc1: r1 r2", "%q is not a device and those that it waits for",
				formats.Clip(line))
			return
		}
		names := append([]string{match[1]}, strings.Fields(match[2])...)
		for _, n := range names {
			if r.byName[n] == nil {
				r.problems.Warn(pos, "", "there is no device %s, and it has no effect", formats.Clip(n))
				return
			}
		}
		d := r.byName[names[0]]
		for _, n := range names[1:] {
			if !slices.Contains(d.After, n) {
				d.After = append(d.After, n)
			}
		}
		d.afterPos = pos
	})
}

// external reads lab.ext: which interfaces of the machine are in which collision domain.
func (r *reader) external() {
	r.lines("lab.ext", func(line string, pos topology.Position) {
		match := attachment.FindStringSubmatch(line)
		switch {
		case match == nil:
			r.problems.Add(pos, "write A enp9s0", "%q is not a collision domain and an interface of the machine",
				formats.Clip(line))
		case r.inOrder[match[1]] == nil:
			r.problems.Add(pos, "name one of "+fileName, "there is no collision domain %s", formats.Clip(match[1]))
		case match[3] != "":
			r.problems.Warn(pos,
				"make the interface before:  ip link add link "+match[2]+" name "+match[2]+match[3]+" type vlan id "+
					match[3][1:],
				"%s%s has no effect: no VLAN is made on an interface of the machine", match[2], match[3])
		default:
			to := r.inOrder[match[1]]
			to.external = append(to.external, end{topology.Endpoint{Interface: match[2]}, pos})
		}
	})
}
