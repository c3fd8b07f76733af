package accept

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// Of accepts only connections from root and one user, whatever the socket's mode has become.
func Of(uid int, l *net.UnixListener) net.Listener { return ofUser{l, uid} }

type ofUser struct {
	*net.UnixListener
	uid int
}

func (l ofUser) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if uid, err := PeerUID(conn); err == nil && (uid == 0 || uid == l.uid) {
			return conn, nil
		}
		conn.Close()
	}
}

// PeerUID returns the user id of the process at the other end.
func PeerUID(conn *net.UnixConn) (uid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var credErr error
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); credErr == nil {
			uid = int(cred.Uid)
		}
	})
	return uid, errors.Join(err, credErr)
}
