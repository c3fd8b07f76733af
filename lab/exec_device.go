package lab

import (
	"encoding/binary"
	"errors"
	"io"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/site"
)

// deviceOf returns the SSH connection to a node that is a device without a daemon; nil for other
// nodes.
func (d *daemon) deviceOf(node string) (*site.Login, error) {
	if s, ok := d.target().(Spread); ok {
		return s.DeviceOf(node)
	}
	return nil, nil
}

// signals are those that SSH knows by name (RFC 4254, section 6.10).
var signals = map[unix.Signal]ssh.Signal{unix.SIGHUP: ssh.SIGHUP, unix.SIGINT: ssh.SIGINT, unix.SIGQUIT: ssh.SIGQUIT,
	unix.SIGTERM: ssh.SIGTERM, unix.SIGKILL: ssh.SIGKILL}

// streamOf writes what a program prints as frames of one kind.
type streamOf struct {
	*session
	kind byte
}

func (s streamOf) Write(b []byte) (int, error) { return len(b), s.send(s.kind, b) }

// runAtDevice has a device's own shell run a program, and passes its streams on.
func (s *session) runAtDevice(d *daemon, l *site.Login, req ExecRequest) {
	fail := func(err error) { _ = s.send(frameError, []byte(err.Error())) }
	if len(req.Command) == 0 {
		fail(errors.New("no command"))
		return
	}
	far, err := l.Session(d.ctx)
	if err != nil {
		fail(err)
		return
	}
	defer far.Close()
	far.Stdout, far.Stderr = streamOf{s, frameStdout}, streamOf{s, frameStderr}
	in, err := far.StdinPipe()
	if err == nil && req.TTY {
		err = far.RequestPty("xterm", int(req.Rows), int(req.Columns), ssh.TerminalModes{})
	}
	if err == nil {
		err = far.Start(words.Shell(req.Command...))
	}
	if err != nil {
		fail(err)
		return
	}
	_, _ = in.Write(req.Typed)
	go s.receiveFor(far, in)
	code := 0
	var exit *ssh.ExitError
	switch err := far.Wait(); {
	case errors.As(err, &exit):
		code = exit.ExitStatus()
	case err != nil:
		fail(err)
		return
	}
	_ = s.send(frameExit, binary.BigEndian.AppendUint32(nil, uint32(code)))
	if req.TTY {
		_ = s.sendUnread(0) // see relay
	}
}

// receiveFor passes on what the client sends; when the client is gone, so is the program's session.
func (s *session) receiveFor(far *ssh.Session, in io.WriteCloser) {
	for {
		kind, content, err := readFrame(s.in)
		if err != nil {
			far.Close()
			return
		}
		switch {
		case kind == frameStdin && len(content) == 0:
			_ = in.Close()
		case kind == frameStdin:
			_, _ = in.Write(content)
		case kind == frameSignal && len(content) == 1:
			_ = far.Signal(signals[unix.Signal(content[0])])
		case kind == frameResize && len(content) == 4:
			_ = far.WindowChange(int(binary.BigEndian.Uint16(content)), int(binary.BigEndian.Uint16(content[2:])))
		}
	}
}
