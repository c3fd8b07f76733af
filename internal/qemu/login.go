package qemu

import (
	"cmp"
	"context"
	"net"

	"golang.org/x/crypto/ssh"

	"trivet.dev/trivet/internal/patience"
)

// Login logs in to a guest at a port of the network namespace of its node, in which the calling
// thread must be. Nobody else can be at the other end: QEMU has made it.
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
