package qemu

import (
	"cmp"
	"context"
	"net"

	"golang.org/x/crypto/ssh"

	"trivet.dev/trivet/internal/patience"
)

// Login logs in to a guest at a port of its node's network namespace, in which the calling thread
// must be. Only QEMU can be at the other end, which has opened the port.
func Login(ctx context.Context, at string, config *ssh.ClientConfig) (*ssh.Client, error) {
	ctx, cancel := patience.Agent.Context(ctx)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", at)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	config.HostKeyCallback = ssh.InsecureIgnoreHostKey()
	c, channels, requests, err := ssh.NewClientConn(conn, at, config)
	if err != nil {
		conn.Close()
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	return ssh.NewClient(c, channels, requests), nil
}
