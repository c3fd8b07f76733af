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

// envElsewhere is what of the client's environment goes to another machine: how to talk to its
// terminal, and what the user has named. The rest may hold keys to anything.
func (r ExecRequest) envElsewhere() (env []string) {
	for _, e := range r.Env {
		name, _, _ := strings.Cut(e, "=")
		if name == "TERM" || name == "LANG" || strings.HasPrefix(name, "LC_") || slices.Contains(r.Carry, name) {
			env = append(env, e)
		}
	}
	return env
}

// ownEnv is what a program that was asked for on another machine is told of this one.
func ownEnv() (env []string) {
	for _, name := range []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// passOn has the daemon of another site run a program.
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

// relay passes on what a program at another site prints, and its end. Nothing else is taken from
// there: above all another machine does not say what of the client's typing the program has left
// unread, as the client would have it typed at its own machine. It is lost, as with ssh.
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
