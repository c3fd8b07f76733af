package drive

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestAskMember proves that the centre's answers are taken as they are, that a member that is not
// the centre is an error with its own words, and that a centre that knows of no loads is the centre
// nonetheless.
func TestAskMember(t *testing.T) {
	t.Parallel()
	idlest := `{"name":"c2","busyness":0.25}`
	for name, c := range map[string]struct {
		idlest, members int // status
		err, part       string
	}{
		"centre":         {idlest: 200, members: 200},
		"another member": {idlest: 409, members: 200, err: "c3 is the centre"},
		"no loads":       {idlest: 200, members: 503, part: "no broker"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			answer := func(path string, status int, good, detail string) {
				mux.HandleFunc("GET /v1/cluster/"+path, func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(status)
					if status != http.StatusOK {
						good = fmt.Sprintf(`{"detail":%q}`, detail)
					}
					fmt.Fprintln(w, good)
				})
			}
			answer("idlest", c.idlest, idlest, "c3 is the centre")
			answer("members", c.members, `{"members":[]}`, "no broker")
			socket := filepath.Join(t.TempDir(), "api.sock")
			listener, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: mux}
			t.Cleanup(func() { server.Close() })
			go server.Serve(listener)

			out, err := askMember(t.Context(), socket)
			switch {
			case c.err != "":
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %+v, %v; want the error %q", out, err, c.err)
				}
			case err != nil:
				t.Error(err)
			case string(out.Idlest) != idlest || out.Error != c.part || (c.part == "") != (string(out.Members) == `{"members":[]}`):
				t.Errorf("got idlest %s, members %s, error %q", out.Idlest, out.Members, out.Error)
			}
		})
	}
}

// TestHeardOfAll proves that the centre has heard from all members when it could choose each, and
// not when it said nothing.
func TestHeardOfAll(t *testing.T) {
	for text, want := range map[string]bool{
		`{"members":[{"name":"c1","candidate":true},{"name":"c2","candidate":true}]}`:  true,
		`{"members":[{"name":"c1","candidate":true},{"name":"c2","candidate":false}]}`: false,
		`{"members":[]}`: false,
		``:               false,
	} {
		if got := (&asked{Members: []byte(text)}).all(); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
