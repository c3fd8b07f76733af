package markdown

import (
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// published is where the pages of this repository are.
const published = "../../../docs/published"

// TestPublished proves of the pages that the repository has that their links lead somewhere, that
// each picture is one of a page, well-formed and small, that no absolute path stands in them, and
// that what README.md says of them is what their index says, and that what their summaries say.
func TestPublished(t *testing.T) {
	index, err := os.ReadFile(filepath.Join(published, Index))
	if err != nil {
		t.Fatal(err)
	}
	pictures := map[string]bool{}
	err = fs.WalkDir(os.DirFS(published), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(published, name))
		if err != nil {
			return err
		}
		switch path.Ext(name) {
		case ".svg":
			if _, seen := pictures[name]; !seen {
				pictures[name] = false
			}
			wellFormed(t, name, data)
		case ".md":
			for _, m := range link.FindAllStringSubmatch(string(data), -1) {
				to := path.Join(path.Dir(name), m[1])
				if path.Ext(to) == ".svg" {
					pictures[to] = true
				}
				there, err := os.ReadFile(filepath.Join(published, to))
				if err != nil || m[2] != "" && !strings.Contains(string(there), `<a id="`+m[2]+`"></a>`) {
					t.Errorf("%s: the link %s leads nowhere: %v", name, m[0], err)
				}
			}
		default:
			if path.Base(name) != SummaryFile {
				t.Errorf("%s is neither a page nor a picture", name)
			}
		}
		if where := regexp.MustCompile(`(?:^|[\s"'(=])/(?:home|root|tmp|work|srv|var|run|usr)/\S*`).Find(data); where != nil {
			t.Errorf("%s has the path %s", name, where)
		}
		return nil
	})
	if err != nil || len(pictures) == 0 {
		t.Fatal(len(pictures), err)
	}
	for name, shown := range pictures {
		if !shown {
			t.Errorf("%s is on no page", name)
		}
	}
	if kept, err := Kept(published); err != nil || !strings.Contains(string(index), total(kept)) {
		t.Errorf("the index does not say %q, as the summaries of its pages do: %v", total(kept), err)
	}
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	count := regexp.MustCompile(`Of \d+ statements, holds: (\d+); does not hold: (\d+); cannot tell: (\d+);`).FindSubmatch(index)
	said := regexp.MustCompile(`(\d+)\s+hold\s+there,\s+(\d+)\s+do\s+not,\s+(\d+)\s+are\s+undecided`).FindSubmatch(readme)
	if count == nil || said == nil || string(count[1]) != string(said[1]) || string(count[2]) != string(said[2]) || string(count[3]) != string(said[3]) {
		t.Errorf("the index says %q, README.md %q", count, said)
	}
	if shown := regexp.MustCompile(`\(docs/published/(\S+\.svg)\)`).FindSubmatch(readme); shown == nil || !pictures[string(shown[1])] {
		t.Errorf("README.md shows the picture %q, which no page has", shown)
	}
}

// wellFormed proves that a picture is XML, on white, and below 100 kB.
func wellFormed(t *testing.T, name string, data []byte) {
	if len(data) > 100_000 || !strings.Contains(string(data), "fill:#FFFFFF") {
		t.Errorf("%s: %d bytes, or not on white", name, len(data))
	}
	d := xml.NewDecoder(strings.NewReader(string(data)))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
	}
}
