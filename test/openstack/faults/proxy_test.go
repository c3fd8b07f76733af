package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"trivet.dev/trivet/test/until"
)

// cloud is a server behind a proxy, and a client before it.
type cloud struct {
	t      *testing.T
	file   string
	url    string
	client *http.Client

	mu    sync.Mutex
	asked []string // of the server
	told  bytes.Buffer
}

func newCloud(t *testing.T, faults ...string) *cloud {
	c := &cloud{t: t, file: filepath.Join(t.TempDir(), "faults.json")}
	c.write(faults...)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asked = append(c.asked, r.Method+" "+r.URL.Path)
		w.Header().Set("From", "the server")
		fmt.Fprint(w, "served")
	}))
	t.Cleanup(server.Close)
	between := httptest.NewServer(newProxy(c.file, json.NewEncoder(lockedWriter{c})))
	t.Cleanup(between.Close)
	address, err := url.Parse(between.URL)
	if err != nil {
		t.Fatal(err)
	}
	c.url = server.URL
	c.client = &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(address), DisableKeepAlives: true}}
	return c
}

// lockedWriter is where a cloud's proxy tells of requests.
type lockedWriter struct{ *cloud }

func (w lockedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.told.Write(b)
}

func (c *cloud) write(faults ...string) {
	c.t.Helper()
	if err := os.WriteFile(c.file, []byte(strings.Join(faults, "\n")+"\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// ask asks the server, with a token; what is answered begins with the status, or with "error".
func (c *cloud) ask(method, path, token string) string {
	request, err := http.NewRequest(method, c.url+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set(tokenHeader, token)
	answer, err := c.client.Do(request)
	if err != nil {
		return "error " + err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return "error " + err.Error()
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", answer.StatusCode, answer.Header.Get("Retry-After"), body))
}

// statuses asks n times, and returns what answers begin with.
func (c *cloud) statuses(n int, method, path string) []string {
	var found []string
	for range n {
		word, _, _ := strings.Cut(c.ask(method, path, "token"), " ")
		found = append(found, word)
	}
	return found
}

func (c *cloud) requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.asked)
}

func (c *cloud) entries() []entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []entry
	for decoder := json.NewDecoder(bytes.NewReader(c.told.Bytes())); ; {
		var e entry
		if decoder.Decode(&e) != nil {
			return found
		}
		found = append(found, e)
	}
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A status is answered to the requests whose turn it is, in the server's place; all others reach
// it.
func TestStatus(t *testing.T) {
	t.Parallel()
	c := newCloud(t, `{"match": "^POST .*/ports$", "nth": 2, "times": 2, "status": 429, "retry_after": "7"}`)
	same(t, c.statuses(1, "GET", "/ports"), []string{"200"})
	same(t, c.statuses(1, "POST", "/ports"), []string{"200"})
	if got := c.ask("POST", "/ports", "token"); !strings.HasPrefix(got, `429 7 {"error":{"code":429`) {
		t.Errorf("the second: %s", got)
	}
	same(t, c.statuses(3, "POST", "/ports"), []string{"429", "200", "200"})
	same(t, c.requests(), []string{"GET /ports", "POST /ports", "POST /ports", "POST /ports"})

	var told []string
	for _, e := range c.entries() {
		told = append(told, fmt.Sprint(strings.Replace(e.Request, c.url, "", 1), " ", e.Status, " ", e.Fault != ""))
	}
	same(t, told, []string{"GET /ports 200 false", "POST /ports 200 false", "POST /ports 429 true", "POST /ports 429 true", "POST /ports 200 false", "POST /ports 200 false"})
}

// Lines come and go while it runs: one that stays goes on counting, one that comes again begins
// anew.
func TestFileChanges(t *testing.T) {
	t.Parallel()
	third, all := `{"match": "/a$", "nth": 3, "status": 503}`, `{"match": "/b$", "times": -1, "status": 500}`
	c := newCloud(t, third)
	same(t, c.statuses(1, "GET", "/a"), []string{"200"})
	c.write(third, all)
	same(t, c.statuses(3, "GET", "/b"), []string{"500", "500", "500"})
	same(t, c.statuses(2, "GET", "/a"), []string{"200", "503"})
	c.write()
	same(t, c.statuses(1, "GET", "/b"), []string{"200"})
	c.write(third)
	same(t, c.statuses(3, "GET", "/a"), []string{"200", "200", "503"})
	c.write("nonsense")
	if got := c.ask("GET", "/a", ""); !strings.HasPrefix(got, "418") || !strings.Contains(got, "faults.json:1:") {
		t.Errorf("of a file that is wrong: %s", got)
	}
}

// A token expires for all requests, and another one does not.
func TestExpired(t *testing.T) {
	t.Parallel()
	c := newCloud(t, `{"match": "^GET .*/servers$", "expired": true}`)
	for _, step := range []struct{ path, token, want string }{
		{"/ports", "old", "200"}, {"/servers", "old", "401"}, {"/ports", "old", "401"}, {"/servers", "new", "200"}, {"/servers", "old", "401"},
	} {
		if got := c.ask("GET", step.path, step.token); !strings.HasPrefix(got, step.want) {
			t.Errorf("%s with token %s: %s, want %s", step.path, step.token, got, step.want)
		}
	}
}

// Of an answer that is lost the server has done what it was asked for, and the client gets an
// error.
func TestLost(t *testing.T) {
	t.Parallel()
	c := newCloud(t, `{"match": "^POST ", "lost": true}`)
	if got := c.ask("POST", "/servers", ""); !strings.HasPrefix(got, "error") || !strings.Contains(got, "EOF") {
		t.Errorf("the client gets %s", got)
	}
	same(t, c.requests(), []string{"POST /servers"})
	same(t, c.statuses(1, "POST", "/servers"), []string{"200"})
}

// Where there is no answer, the client waits until it gives up, and others are served meanwhile.
func TestHang(t *testing.T) {
	t.Parallel()
	c := newCloud(t, `{"match": "/slow$", "hang": true}`)
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, "GET", c.url+"/slow", nil)
	if err != nil {
		t.Fatal(err)
	}
	gaveUp := make(chan error, 1)
	go func() {
		answer, err := c.client.Do(request)
		if err == nil {
			answer.Body.Close()
		}
		gaveUp <- err
	}()
	until.True(t, "the request has come", func() bool { return len(c.entries()) == 1 })
	same(t, c.statuses(1, "GET", "/ports"), []string{"200"})
	select {
	case err := <-gaveUp:
		t.Fatalf("it was answered: %v", err)
	default:
	}
	cancel()
	if err := <-gaveUp; err == nil {
		t.Error("it was answered in the end")
	}
	same(t, c.requests(), []string{"GET /ports"})
}

// What a line says wrong is told.
func TestWrongLines(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"match": "("}`:                                   "missing closing )",
		`{"match": "a", "statsu": 500}`:                    "statsu",
		`{"match": "a"}`:                                   "one of status, hang, lost and expired",
		`{"match": "a", "status": 500, "hang": true}`:      "one of status, hang, lost and expired",
		`{"match": "a", "status": 200}`:                    "status is 400 to 599",
		`{"match": "a", "status": 500, "nth": 0}`:          "nth is 1 or more",
		`{"match": "a", "hang": true, "retry_after": "1"}`: "retry_after goes with a status",
	} {
		if _, err := parseFault(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}
