package topology

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"trivet.dev/trivet/internal/words"
)

// NodeFile is a file that a node is given: written before its program starts, and again when it
// changes. Its text is in a file next to the topology's, or within that.
type NodeFile struct {
	Path string `json:"path"` // in the node
	TextFile
	Mode uint32 `json:"mode,omitempty"` // permissions, once they have been read
}

// TextMode are the permissions of a file whose text is in the topology's file.
const TextMode = 0o644

// MaxNodeFiles limits the number of files of a node: each takes a few requests to its engine.
const MaxNodeFiles = 64

// filePath is the maximum length of a path in Linux (PATH_MAX).
const filePath = 4096

// InText says whether the topology's file can contain the file itself: there, texts of one line are
// names of files.
func (f NodeFile) InText() bool { return f.Mode == TextMode && strings.Contains(f.Text, "\n") }

// String identifies the file and its content, without showing the text.
func (f NodeFile) String() string {
	if f.Mode == 0 {
		return cmp.Or(f.File, "a text")
	}
	sum := sha256.Sum256([]byte(f.Text))
	return fmt.Sprintf("%s, mode %04o, %x", words.Plural(len(f.Text), "byte"), f.Mode, sum[:4])
}

// errand describes what root does with it.
func (f NodeFile) errand() string {
	return cmp.Or(f.File, "a text of the topology's file") + " as " + f.Path
}

// NotText says why a file's content cannot be kept in a topology; "" if it can.
func NotText(text string) string {
	switch {
	case len(text) > MaxConfigFile:
		return fmt.Sprintf("has more than %d MiB", MaxConfigFile>>20)
	case hasNUL(text) || !utf8.ValidString(text):
		return "is not text"
	}
	return ""
}

// ofLab are files and directories in every container that belong to the lab or the kernel.
var ofLab = []string{"/etc/hosts", "/etc/resolv.conf", "/.trivet", "/proc", "/sys", "/dev"}

// within says whether a path is dir, or below it; both are clean.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// files checks the files that a node is given.
func (v *validator) files(n *Node, bad func(hint, format string, args ...any)) {
	if len(n.Files) == 0 {
		return
	}
	switch {
	case n.Guest != nil:
		bad("have cloud-init write them: write_files of user_data",
			"files: they are for containers, and this is a virtual machine")
		return
	case !n.Contained():
		bad("show a file of the machine's there: dirs: [{/etc/x.conf: ./x.conf}]",
			"files: they are for containers; this node has the files of its machine")
		return
	case len(n.Files) > MaxNodeFiles:
		bad("show a directory there: dirs", "files: there are %d, and a node can be given %d", len(n.Files),
			MaxNodeFiles)
		return
	}
	for i, f := range n.Files {
		p := f.Path
		clash := slices.IndexFunc(n.Files[:i],
			func(other NodeFile) bool { return within(p, other.Path) || within(other.Path, p) })
		dir := slices.IndexFunc(n.Dirs, func(d PrivateDir) bool {
			shown := path.Clean(d.Path)
			return within(p, shown) || within(shown, p)
		})
		owned := slices.IndexFunc(ofLab, func(dir string) bool { return within(p, dir) })
		switch {
		case !path.IsAbs(p) || path.Clean(p) != p || p == "/" || len(p) > filePath ||
			strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }) || !utf8.ValidString(p):
			bad("write {/etc/nginx/nginx.conf: web/nginx.conf}", "files: %q cannot be a file of the node", clip(p))
		case clash >= 0 && n.Files[clash].Path == p:
			bad("write it once", "files: %s is there twice", clip(p))
		case clash >= 0:
			bad("give one of them another name", "files: %s and %s cannot both be files", clip(n.Files[clash].Path),
				clip(p))
		case owned >= 0:
			bad("leave it out", "files: %s is not the node's own: %s is the lab's or the kernel's", clip(p),
				ofLab[owned])
		case dir >= 0:
			bad("put it into that directory of the machine, or leave one of them out",
				"files: %s and %s of dirs are in each other's place", clip(p), clip(n.Dirs[dir].Path))
		default:
			f.valid("files: "+clip(p), bad)
		}
	}
}
