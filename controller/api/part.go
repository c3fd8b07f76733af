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
	"trivet.dev/trivet/internal/lists"
)

// A member that answers with its part says which switches the part covers: those of which it was
// master when the request arrived, and still was when it answered. So each switch can be taken from
// one part, and switches that are in none are known.

// partHeader requests a part, with any value; in the answer it holds the switches' names.
const partHeader = "Trivet-Part"

// parts adds partHeader to a handler's answers.
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

// led returns the names of the switches of which a controller is master.
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

// partWriter writes partHeader when the answer begins: by then the handler has collected it.
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
	escaped := lists.Map(names, url.QueryEscape)
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

// missingHeader marks an answer that lists what it lacks.
const missingHeader = "Trivet-Missing"

// WithMissing adds what an answer lacks to its JSON: to an object as a field "missing"; anything
// else becomes the field "items" of such an object. So a client that expects a complete answer
// fails to decode it.
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

// decode reads an answer of the API; what it lacks is passed to c.Lacks.
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
		return out, fmt.Errorf("the answer is incomplete; it lacks %s", strings.Join(part.Missing, "; "))
	}
	c.Lacks(part.Missing)
	return out, nil
}
