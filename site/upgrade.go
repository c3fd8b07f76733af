package site

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"

	"trivet.dev/trivet/internal/patience"
)

// Upgrade sends an HTTP upgrade request, and returns the connection for the new protocol. If ctx
// ends first, or after two minutes, the connection is closed. If the other end declines, the error
// is a *Refused.
func Upgrade(ctx context.Context, conn net.Conn, method, path, protocol string, header http.Header,
	body []byte) (net.Conn, error) {
	req, err := http.NewRequest(method, "http://lab"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header.Clone()
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", protocol)
	ctx, cancel := patience.Answer.Context(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	from := &io.LimitedReader{R: conn, N: mostHeader}
	in := bufio.NewReader(from)
	resp, err := http.ReadResponse(in, req)
	from.N = math.MaxInt64 // the new protocol has no limit
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		return nil, &Refused{resp.StatusCode, cmp.Or(strings.TrimSpace(string(text)), path+": "+resp.Status)}
	}
	return buffered{conn, in}, nil
}

// Upgraded accepts an upgrade request, and returns the connection. If it fails, it has sent the
// error response.
func Upgraded(w http.ResponseWriter, r *http.Request, protocol string) (net.Conn, error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), protocol) {
		http.Error(w, "upgrade to "+protocol, http.StatusUpgradeRequired)
		return nil, errors.New("no upgrade")
	}
	conn, in, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return nil, err
	}
	if _, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
		protocol); err != nil {
		conn.Close()
		return nil, err
	}
	return buffered{conn, in.Reader}, nil
}

// Lead accepts an upgrade request, and connects the upgraded connection with near, which is closed
// in any case.
func Lead(w http.ResponseWriter, r *http.Request, protocol string, near net.Conn) {
	far, err := Upgraded(w, r, protocol)
	if err != nil {
		near.Close()
		return
	}
	Splice(far, near)
}

// buffered is a connection from which data may have been read already.
type buffered struct {
	net.Conn
	in *bufio.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.in.Read(p) }
