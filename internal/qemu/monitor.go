package qemu

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Monitor is a connection to a machine's QEMU (QEMU Machine Protocol). After an ErrSilent it is
// unusable: a late answer would be taken as that to another request.
type Monitor struct {
	conn   *net.UnixConn
	in     *json.Decoder
	within time.Duration
}

// ErrSilent says that QEMU does not answer, as opposed to refusing a request.
var ErrSilent = errors.New("QEMU does not answer")

// Watch connects to the machine in a directory; each answer may take up to the given time. There
// can be only one connection at a time.
func Watch(dir string, within time.Duration) (*Monitor, error) {
	at, err := os.Open(dir) // paths of sockets have at most 107 bytes
	if err != nil {
		return nil, err
	}
	defer at.Close()
	conn, err := net.DialTimeout("unix", fmt.Sprintf("/proc/self/fd/%d/%s", at.Fd(), MonitorSocket), within)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSilent, err)
	}
	m := &Monitor{conn.(*net.UnixConn), json.NewDecoder(conn), within}
	if _, err := m.Do("qmp_capabilities", nil); err != nil {
		conn.Close()
		return nil, err
	}
	return m, nil
}

// Close ends the connection.
func (m *Monitor) Close() error { return m.conn.Close() }

// SetLink sets or removes the carrier of an interface of the guest, given by its ID.
func (m *Monitor) SetLink(id string, up bool) error {
	_, err := m.Do("set_link", map[string]any{"name": id, "up": up})
	return err
}

// Give passes an open file to QEMU under a name.
func (m *Monitor) Give(name string, f *os.File) error {
	raw, err := json.Marshal(map[string]any{"execute": "getfd", "arguments": map[string]any{"fdname": name}})
	if err != nil {
		return err
	}
	_ = m.conn.SetDeadline(time.Now().Add(m.within))
	if _, _, err := m.conn.WriteMsgUnix(raw, unix.UnixRights(int(f.Fd())), nil); err != nil {
		return fmt.Errorf("%w: getfd: %w", ErrSilent, err)
	}
	_, err = m.answer("getfd")
	return err
}

// Do sends QEMU a command, and returns its answer.
func (m *Monitor) Do(command string, arguments map[string]any) (json.RawMessage, error) {
	_ = m.conn.SetDeadline(time.Now().Add(m.within))
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	if err := json.NewEncoder(m.conn).Encode(request); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrSilent, command, err)
	}
	return m.answer(command)
}

// answer waits for the answer to a command.
func (m *Monitor) answer(command string) (json.RawMessage, error) {
	for {
		var answer struct {
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Desc string `json:"desc"`
			} `json:"error"`
		}
		if err := m.in.Decode(&answer); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrSilent, command, err)
		}
		switch {
		case answer.Error != nil:
			return nil, fmt.Errorf("QEMU: %s: %s", command, answer.Error.Desc)
		case answer.Return != nil:
			return answer.Return, nil
		} // otherwise the greeting, or an event
	}
}
