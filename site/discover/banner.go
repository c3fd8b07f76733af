package discover

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"
)

// bannerTime is the timeout for an SSH server's identification, including the connection.
const bannerTime = 3 * time.Second

// banner returns the identification of an SSH server; empty: none answers.
func banner(ctx context.Context, a netip.Addr) string {
	ctx, cancel := context.WithTimeout(ctx, bannerTime)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(a, 22).String())
	if err != nil {
		return ""
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return readBanner(conn)
}

// Limits on what an SSH server may send before its identification: it may send other lines first
// (RFC 4253, section 4.2), and the identification has at most 255 characters.
const bannerBytes, bannerLength = 8 << 10, 255

// readBanner reads an SSH server's identification, without the protocol version.
func readBanner(r io.Reader) string {
	lines := bufio.NewReaderSize(io.LimitReader(r, bannerBytes), bannerLength+1)
	for {
		line, long, err := lines.ReadLine()
		if rest, ok := strings.CutPrefix(string(line), "SSH-"); ok && err == nil {
			_, software, _ := strings.Cut(rest, "-")
			return strings.TrimSpace(software[:min(len(software), bannerLength)])
		}
		for long && err == nil {
			_, long, err = lines.ReadLine()
		}
		if err != nil {
			return ""
		}
	}
}
