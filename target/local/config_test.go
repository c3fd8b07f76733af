package local

import (
	"strings"
	"testing"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// TestLeaveOut proves that what a node has beyond the room for texts is left out, with a remark
// that names it, and that what is shorter still is kept.
func TestLeaveOut(t *testing.T) {
	p := lab.Present{Node: "h1", Remarks: []string{"other"}}
	for _, text := range []string{"/a", "/long", "/b"} {
		p.Files = append(p.Files, topology.NodeFile{Path: text, TextFile: topology.TextFile{Text: text}})
	}
	left := leaveOut(&p, &p.Files, 5, func(f topology.NodeFile) (string, string) { return f.Path, f.Text })
	if len(p.Files) != 2 || p.Files[0].Path != "/a" || p.Files[1].Path != "/b" || left != 1 {
		t.Errorf("%d bytes are left beside %+v", left, p.Files)
	}
	if len(p.Remarks) != 2 || p.Remarks[0] != "other" || !strings.HasPrefix(p.Remarks[1], "/long is not saved: ") {
		t.Errorf("the remarks are %q", p.Remarks)
	}
}
