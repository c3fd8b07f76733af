package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"trivet.dev/trivet/controller/builtin"
)

// A member of a cluster that is asked for its part of an answer says whose part that is: the
// switches that it led when the question came, and still did when it answered. So who joins the
// parts takes each switch from one of them, and sees which are in none.

// partHeader asks for it, with any value, and in the answer is the switches' names.
const partHeader = "Trivet-Part"

// parts makes a handler say it.
func (s *Server) parts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := s.controller.Load()
		if c == nil || c.Owner == nil || r.Header.Get(partHeader) == "" {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(&partWriter{ResponseWriter: w, c: c, before: led(c)}, r)
	})
}

// led are the switches that a controller leads, by name.
func led(c *builtin.Controller) (names []string) {
	m := c.Map()
	for _, s := range c.Switches() {
		if s.Leads() {
			names = append(names, m.Switch(s.DPID()).Name)
		}
	}
	slices.Sort(names)
	return names
}

// partWriter says whose part an answer is when that begins: handlers have made it then.
type partWriter struct {
	http.ResponseWriter
	c      *builtin.Controller
	before []string
	begun  bool
}

func (w *partWriter) WriteHeader(status int) {
	if !w.begun && status >= 200 {
		w.begun = true
		now := led(w.c)
		w.Header().Set(partHeader, partText(slices.DeleteFunc(w.before, func(name string) bool {
			_, still := slices.BinarySearch(now, name)
			return !still
		})))
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *partWriter) Write(b []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets streams be flushed.
func (w *partWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func partText(names []string) string {
	escaped := make([]string, len(names))
	for i, n := range names {
		escaped[i] = url.QueryEscape(n)
	}
	return strings.Join(escaped, ",")
}

func parsePart(text string) (names []string, err error) {
	for escaped := range strings.SplitSeq(text, ",") {
		if escaped == "" {
			continue
		}
		n, err := url.QueryUnescape(escaped)
		if err != nil {
			return nil, err
		}
		names = append(names, n)
	}
	return names, nil
}

// missingHeader marks an answer that says what it lacks.
const missingHeader = "Trivet-Missing"

// WithMissing makes JSON say what it lacks: an object by a field "missing", what is none by one
// that has it as "items". So nobody takes the answer for a whole one who expects that.
func WithMissing(answer []byte, missing []string) ([]byte, error) {
	if len(missing) == 0 {
		return answer, nil
	}
	text, err := json.Marshal(missing)
	if err != nil {
		return nil, err
	}
	answer = bytes.TrimSpace(answer)
	if object, ok := bytes.CutSuffix(answer, []byte("}")); ok {
		comma := ","
		if len(bytes.TrimSpace(object)) == 1 {
			comma = ""
		}
		return fmt.Appendf(nil, `%s%s"missing":%s}`, object, comma, text), nil
	}
	return fmt.Appendf(nil, `{"items":%s,"missing":%s}`, answer, text), nil
}

// decode reads an answer of the API; what it lacks is told to c.Lacks.
func decode[T any](c *Client, resp *http.Response) (out T, err error) {
	if resp.Header.Get(missingHeader) == "" {
		return out, json.NewDecoder(resp.Body).Decode(&out)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return out, err
	}
	var part struct {
		Items   json.RawMessage `json:"items"`
		Missing []string        `json:"missing"`
	}
	if err := json.Unmarshal(text, &part); err != nil {
		return out, err
	}
	if part.Items != nil {
		text = part.Items
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, err
	}
	if c.Lacks == nil {
		return out, fmt.Errorf("the answer is not whole; it lacks %s", strings.Join(part.Missing, "; "))
	}
	c.Lacks(part.Missing)
	return out, nil
}
