package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"os"
	"regexp"
	"strconv"
	"sync"
)

// fault is a line of the file: what becomes of some of the requests that match.
type fault struct {
	Match string `json:"match"` // a regular expression for "METHOD URL"
	Nth   int    `json:"nth"`   // the first of them, counted from 1 (1)
	Times int    `json:"times"` // how many in a row (1); -1: all that follow

	// One of these. A status is answered without asking the server.
	Status     int    `json:"status"`
	RetryAfter string `json:"retry_after"` // the header, with a status
	Hang       bool   `json:"hang"`        // there is no answer, and the server is not asked
	Lost       bool   `json:"lost"`        // the server does what it is asked for, and the answer gets lost
	Expired    bool   `json:"expired"`     // the token of the request is no longer valid, also in other requests

	pattern *regexp.Regexp
}

// entry is what is told of a request.
type entry struct {
	Request string `json:"request"`         // "METHOD URL"
	Status  int    `json:"status"`          // what was answered; 0: nothing
	Fault   string `json:"fault,omitempty"` // the line that took effect
}

// tokenHeader has a client's token.
const tokenHeader = "X-Auth-Token"

type proxy struct {
	file    string
	forward *httputil.ReverseProxy

	mu      sync.Mutex
	log     *json.Encoder
	seen    map[string]int  // how many requests each line has matched
	expired map[string]bool // tokens
}

func newProxy(file string, log *json.Encoder) *proxy {
	return &proxy{
		file: file,
		// What a client asks a proxy for has the whole URL.
		forward: &httputil.ReverseProxy{
			Rewrite:   func(*httputil.ProxyRequest) {},
			Transport: &http.Transport{}, // and no proxy behind it
		},
		log:     log,
		seen:    map[string]int{},
		expired: map[string]bool{},
	}
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	told := entry{Request: r.Method + " " + r.URL.String()}
	if !r.URL.IsAbs() {
		http.Error(w, "faults: this is a proxy; what is asked for has a whole URL", http.StatusBadRequest)
		return
	}
	f, line, err := p.due(told.Request)
	if err != nil { // whoever wrote the file sees it in the client's message
		http.Error(w, "faults: "+err.Error(), http.StatusTeapot)
		return
	}
	told.Fault = line
	if f.Expired {
		p.mu.Lock()
		p.expired[r.Header.Get(tokenHeader)] = true
		p.mu.Unlock()
	}
	p.mu.Lock()
	expired := p.expired[r.Header.Get(tokenHeader)]
	p.mu.Unlock()

	answer := &recorder{ResponseWriter: w}
	switch {
	case expired:
		refuse(answer, http.StatusUnauthorized)
	case f.Status != 0:
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		refuse(answer, f.Status)
	case f.Hang:
		p.tell(told)
		<-r.Context().Done()
		return
	case f.Lost:
		p.forward.ServeHTTP(&discarded{header: http.Header{}}, r)
		p.tell(told)
		panic(http.ErrAbortHandler) // ends the connection
	default:
		p.forward.ServeHTTP(answer, r)
	}
	told.Status = answer.status
	p.tell(told)
}

// due counts a request in each line that it matches, and returns the first line whose turn it is.
func (p *proxy) due(request string) (due fault, line string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	faults, err := readFaults(p.file)
	if err != nil {
		return fault{}, "", err
	}
	for text := range p.seen {
		if _, kept := faults.byLine[text]; !kept {
			delete(p.seen, text)
		}
	}
	for _, text := range faults.lines {
		f := faults.byLine[text]
		if !f.pattern.MatchString(request) {
			continue
		}
		p.seen[text]++
		if n := p.seen[text] - f.Nth; line == "" && n >= 0 && (f.Times < 0 || n < f.Times) {
			due, line = f, text
		}
	}
	return due, line, nil
}

func (p *proxy) tell(e entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.log.Encode(e)
}

// refuse answers as OpenStack's services do.
func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": status, "title": http.StatusText(status), "message": "a planted fault"}})
}

// faultFile is what a file says: lines in their order, each once.
type faultFile struct {
	lines  []string
	byLine map[string]fault
}

// readFaults reads a file; one that is not there has none.
func readFaults(file string) (faultFile, error) {
	found := faultFile{byLine: map[string]fault{}}
	data, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return faultFile{}, err
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		text := string(bytes.TrimSpace(lines.Bytes()))
		if _, twice := found.byLine[text]; text == "" || twice {
			continue
		}
		f, err := parseFault(text)
		if err != nil {
			return faultFile{}, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		found.lines = append(found.lines, text)
		found.byLine[text] = f
	}
	return found, lines.Err()
}

func parseFault(text string) (fault, error) {
	f := fault{Nth: 1, Times: 1}
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		return fault{}, err
	}
	kinds := 0
	for _, given := range []bool{f.Status != 0, f.Hang, f.Lost, f.Expired} {
		if given {
			kinds++
		}
	}
	var err error
	switch f.pattern, err = regexp.Compile(f.Match); {
	case err != nil:
		return fault{}, err
	case kinds != 1:
		return fault{}, fmt.Errorf("one of status, hang, lost and expired is wanted: %s", text)
	case f.Nth < 1 || f.Times == 0 || f.Status != 0 && (f.Status < 400 || f.Status > 599):
		return fault{}, fmt.Errorf("nth is 1 or more, times is not 0, status is 400 to 599: %s", text)
	case f.RetryAfter != "" && f.Status == 0:
		return fault{}, fmt.Errorf("retry_after goes with a status: %s", strconv.Quote(f.RetryAfter))
	}
	return f, nil
}

// recorder notes the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	if status >= 200 { // not of what is on its way only
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// discarded takes an answer that nobody gets.
type discarded struct{ header http.Header }

func (d *discarded) Header() http.Header         { return d.header }
func (d *discarded) Write(b []byte) (int, error) { return len(b), nil }
func (d *discarded) WriteHeader(int)             {}
