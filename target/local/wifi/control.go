package wifi

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/internal/patience"
)

// Control is a connection to the control socket of hostapd or wpa_supplicant (hostapd_cli(1),
// wpa_cli(1)): a datagram is a command, the answer comes back to the sender's own socket.
type Control struct {
	conn *net.UnixConn
	own  string
}

var connections atomic.Uint64 // numbers those of this process

// Dial connects to the socket of an interface in a directory.
func Dial(directory, device string) (*Control, error) {
	own := fmt.Sprintf("%s/.trivet-%d-%d", directory, os.Getpid(), connections.Add(1))
	_ = os.Remove(own) // of a process that had our number
	conn, err := net.DialUnix("unixgram", &net.UnixAddr{Name: own, Net: "unixgram"},
		&net.UnixAddr{Name: directory + "/" + device, Net: "unixgram"})
	if err != nil {
		_ = os.Remove(own)
		return nil, err
	}
	return &Control{conn, own}, nil
}

// Close ends the connection.
func (c *Control) Close() {
	c.conn.Close()
	_ = os.Remove(c.own)
}

// Ask sends a command and returns the answer.
func (c *Control) Ask(command string) (string, error) {
	if _, err := c.conn.Write([]byte(command)); err != nil {
		return "", err
	}
	for deadline := time.Now().Add(patience.Supplicant.Duration()); ; {
		text, err := c.read(deadline)
		if err != nil || !isEvent(text) {
			return text, err
		}
	}
}

// Attach asks for events, which Event then returns.
func (c *Control) Attach() error {
	answer, err := c.Ask("ATTACH")
	if err == nil && strings.TrimSpace(answer) != "OK" {
		err = errors.New("it tells no events: " + strings.TrimSpace(answer))
	}
	return err
}

// Event waits for the next event and returns it without its level: "AP-STA-CONNECTED 02:00:…". The
// zero deadline is none.
func (c *Control) Event(deadline time.Time) (string, error) {
	for {
		text, err := c.read(deadline)
		if err != nil || isEvent(text) {
			_, event, _ := strings.Cut(text, ">")
			return event, err
		}
	}
}

func (c *Control) read(deadline time.Time) (string, error) {
	if err := c.conn.SetReadDeadline(deadline); err != nil {
		return "", err
	}
	buffer := make([]byte, 8192)
	n, err := c.conn.Read(buffer)
	return string(buffer[:n]), err
}

// isEvent says whether a datagram is one: "<3>AP-ENABLED ".
func isEvent(text string) bool {
	return len(text) > 3 && text[0] == '<' && strings.Contains(text[:min(4, len(text))], ">")
}

// Value returns a value of an answer in lines of the form name=value.
func Value(answer, name string) string {
	for line := range strings.Lines(answer) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			return value
		}
	}
	return ""
}
