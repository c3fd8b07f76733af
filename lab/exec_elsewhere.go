package lab

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	"trivet.dev/trivet/site"
)

// envElsewhere returns the part of the client's environment that is passed to another machine: what
// the terminal needs, and what the user has named. The rest may contain secrets.
func (r ExecRequest) envElsewhere() (env []string) {
	for _, e := range r.Env {
		name, _, _ := strings.Cut(e, "=")
		if name == "TERM" || name == "LANG" || strings.HasPrefix(name, "LC_") || slices.Contains(r.Carry, name) {
			env = append(env, e)
		}
	}
	return env
}

// ownEnv returns what a program that was started from another machine gets of this machine's
// environment.
func ownEnv() (env []string) {
	for _, name := range []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// passOn has the daemon of another site run a program, and relays its streams.
func (c *Client) passOn(w http.ResponseWriter, r *http.Request, req ExecRequest) {
	req.Env, req.Carry = req.envElsewhere(), nil
	body, err := json.Marshal(req)
	if err != nil {
		writeProblem(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	conn, err := c.dial(r.Context())
	if err != nil {
		writeProblem(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	defer conn.Close()
	far, err := site.Upgrade(r.Context(), conn, "POST", "/v1/exec", streamProtocol, r.Header, body)
	if err != nil {
		writeProblem(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	near, err := site.Upgraded(w, r, streamProtocol)
	if err != nil {
		return
	}
	defer near.Close()
	go func() {
		_, _ = io.Copy(far, near)
		far.Close() // the client is gone
	}()
	relay(near, far, req.TTY)
}

// relay passes on the output and the exit code of a program at another site, and nothing else.
// Above all it never says how much of the client's typing the program left unread: the client would
// then have those bytes typed at its own machine. They are lost, as with ssh.
func relay(near io.Writer, far net.Conn, tty bool) {
	for {
		kind, content, err := readFrame(far)
		ends := kind == frameExit && len(content) == 4 || kind == frameError
		switch {
		case err != nil: // the client says that the connection is lost
			return
		case !ends && kind != frameStdout && kind != frameStderr:
			content = fmt.Appendf(nil, "the other machine's answer is no program's: a frame of kind %d and %d bytes",
				kind, len(content))
			kind, ends = frameError, true
		}
		if err := writeFrame(near, kind, content); err != nil {
			return
		}
		if ends {
			if tty && kind == frameExit {
				_ = writeFrame(near, frameUnread, make([]byte, 4))
			}
			return
		}
	}
}
