package container

import (
	"archive/tar"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	engineapi "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"trivet.dev/trivet/topology"
)

// fakeEngine is an engine with one container, of which it knows files, by their paths, and
// directories.
type fakeEngine struct {
	texts map[string]string // "/": a directory
	puts  int               // that it was asked for
	fails map[int]bool      // which of them fail
	half  bool              // after having emptied the file
}

func (d *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := r.URL.Query().Get("path")
	switch text, there := d.texts[at]; {
	case strings.HasSuffix(r.URL.Path, "/_ping"):
		w.Header().Set("Api-Version", "1.47")
	case r.Method == http.MethodHead && there:
		stat := engineapi.PathStat{Name: path.Base(at), Size: int64(len(text)), Mode: 0o644, Mtime: time.Unix(1, 0)}
		if text == "/" {
			stat.Mode = os.ModeDir | 0o755
		}
		b, _ := json.Marshal(stat)
		w.Header().Set("X-Docker-Container-Path-Stat", base64.StdEncoding.EncodeToString(b))
	case r.Method == http.MethodPut:
		d.puts++
		for in := tar.NewReader(r.Body); ; {
			h, err := in.Next()
			if err != nil {
				return
			}
			text := "/"
			if h.Typeflag == tar.TypeReg {
				b, _ := io.ReadAll(in)
				text = string(b)
			}
			if d.fails[d.puts] {
				if d.half {
					d.texts[path.Join(at, h.Name)] = ""
				}
				http.Error(w, `{"message": "no room"}`, http.StatusInternalServerError)
				return
			}
			d.texts[path.Join(at, h.Name)] = text
		}
	default:
		http.Error(w, `{"message": "no such thing"}`, http.StatusNotFound)
	}
}

// TestGiveAgain proves that files that were changed are put into a container all or not at all,
// whatever is in the way there, at whichever of them it fails, and that the way back from a change
// that has failed puts nothing, and so cannot fail: also if what failed was another node.
func TestGiveAgain(t *testing.T) {
	node := func(text string) *topology.Node {
		n := &topology.Node{Name: "h1"}
		for _, name := range []string{"/etc/app/a", "/etc/app/b", "/c"} {
			n.Files = append(n.Files, topology.NodeFile{Path: name, Mode: 0o644, TextFile: topology.TextFile{Text: text + name}})
		}
		return n
	}
	has := func(text string) map[string]string {
		out := map[string]string{"/etc": "/", "/etc/app": "/"}
		for _, f := range node(text).Files {
			out[f.Path] = f.Text
		}
		return out
	}
	old, changed := node("old"), node("changed")
	for name, c := range map[string]struct {
		change func(map[string]string)
		fails  map[int]bool
		half   bool
		wrong  string
		puts   int // by the change
	}{
		"it works":                    {puts: 3},
		"there is no directory":       {change: func(m map[string]string) { delete(m, "/etc/app/a"); delete(m, "/etc/app/b"); delete(m, "/etc/app") }, puts: 3},
		"a file is the directory":     {change: func(m map[string]string) { m["/etc/app"] = "x" }, wrong: "/etc/app is no directory"},
		"a directory is the last":     {change: func(m map[string]string) { m["/c"] = "/" }, wrong: "/c is no regular file"},
		"nothing can be put":          {fails: map[int]bool{1: true, 2: true, 3: true, 4: true}, wrong: "no room", puts: 1},
		"the last cannot be put":      {fails: map[int]bool{3: true}, wrong: "no room", puts: 5},
		"the last is put half":        {fails: map[int]bool{3: true}, half: true, wrong: "no room", puts: 6},
		"one cannot be put back soon": {fails: map[int]bool{3: true, 4: true}, wrong: "no room", puts: 5},
	} {
		t.Run(name, func(t *testing.T) {
			d := &fakeEngine{texts: has("old"), fails: c.fails, half: c.half}
			server := httptest.NewServer(d)
			defer server.Close()
			engine, err := client.New(client.WithHost("tcp://" + strings.TrimPrefix(server.URL, "http://")))
			if err != nil {
				t.Fatal(err)
			}
			defer engine.Close()
			k := &containers{client: engine, known: map[string]*running{"h1": {id: "one"}}, given: map[string]given{}}
			k.note(old)
			if c.change != nil {
				c.change(d.texts)
			}
			before := maps.Clone(d.texts)
			if err := k.giveAgain(old, changed); err != nil || d.puts > 0 { // the way back of a change that has not come here
				t.Fatalf("%d puts: %v", d.puts, err)
			}
			err = k.giveAgain(changed, old)
			if (err == nil) != (c.wrong == "") || err != nil && (!strings.Contains(err.Error(), c.wrong) || !strings.HasPrefix(err.Error(), "files: /")) {
				t.Fatal(err)
			}
			if d.puts != c.puts {
				t.Errorf("%d puts", d.puts)
			}
			if err == nil && !maps.Equal(d.texts, has("changed")) {
				t.Errorf("there is %q", d.texts)
			}
			if back := k.giveAgain(old, changed); back != nil {
				t.Error(errors.Join(err, back))
			}
			if err != nil && !maps.Equal(d.texts, before) || err == nil && !maps.Equal(d.texts, has("old")) {
				t.Errorf("undone, there is %q, and was %q", d.texts, before)
			}
		})
	}
}
