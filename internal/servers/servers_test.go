package servers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/controller/store/etcd"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/test/until"
)

// TestServers proves that an etcd and a RabbitMQ of a lab's own run as ordinary users beside whatever
// else is on the machine, serve who has a certificate of the lab and nobody else, take the lab's
// password and no other, keep what they were told over kill -9, and have no secret where others
// could read it.
func TestServers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run programs as other users")
	}
	if err := Missing(All()...); err != nil {
		t.Skip(err)
	}
	top := t.TempDir()
	for dir := top; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) { // others must be able to go through it
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	authority, err := OpenAuthority(top, "test")
	if err != nil {
		t.Fatal(err)
	}
	again, err := OpenAuthority(top, "test")
	if err != nil || !again.certificate.Equal(authority.certificate) {
		t.Fatalf("the authority is another one the second time: %v", err)
	}
	member := place(t, top, "member", "nobody", authority)
	t.Run("etcd", func(t *testing.T) { testEtcd(t, place(t, top, "etcd", "etcd", authority), member) })
	t.Run("rabbitmq", func(t *testing.T) { testRabbitMQ(t, place(t, top, "rabbitmq", "rabbitmq", authority), member) })
	if err := filepath.Walk(top, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() && filepath.Base(path) != authorityFile && filepath.Dir(filepath.Dir(path)) == top && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

func place(t *testing.T, top, name, user string, a *Authority) Place {
	p := Place{Dir: filepath.Join(top, name)}
	if p.UID, p.GID = UserOf(user); p.UID == 0 {
		t.Fatalf("%s is root", user)
	}
	if err := errors.Join(p.Make(), p.Certify(a, name)); err != nil {
		t.Fatal(err)
	}
	return p
}

func testEtcd(t *testing.T, p, member Place) {
	ports := EtcdPorts{free(t), free(t)}
	end := start(t, p, func() (*exec.Cmd, error) { return EtcdCommand(p, ports) }, ports.Clients)
	address, err := etcd.ParseAddress(EtcdURL(ports) + "/x")
	if err != nil {
		t.Fatal(err)
	}
	address.TLS = etcd.TLS{CA: p.Authority(), Certificate: member.File("cert.pem"), Key: member.File("key.pem")}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	put := func(value string) string {
		s, err := etcd.Open(ctx, address)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		before, err := s.Get(ctx, "key")
		if err == nil {
			err = s.Commit(ctx, nil, store.Put("key", []byte(value)))
		}
		if err != nil {
			t.Fatal(err)
		}
		return string(before.Value)
	}
	put("1")
	end()
	start(t, p, func() (*exec.Cmd, error) { return EtcdCommand(p, ports) }, ports.Clients)
	if got := put("2"); got != "1" {
		t.Errorf("after kill -9 the store has %q", got)
	}
	stranger(t, ports.Clients)
}

func testRabbitMQ(t *testing.T, p, member Place) {
	ports := RabbitMQPorts{free(t), free(t), free(t)}
	start(t, p, func() (*exec.Cmd, error) { return RabbitMQCommand(p, ports) }, ports.Clients)
	login, err := RabbitMQLogin(p)
	if err != nil {
		t.Fatal(err)
	}
	user, password, _ := strings.Cut(strings.TrimSpace(string(login)), ":")
	if method := greet(t, ports.Clients, member, p.Authority(), user, password); method != 30 { // connection.tune
		t.Errorf("with the lab's password RabbitMQ answers with method %d", method)
	}
	if method := greet(t, ports.Clients, member, p.Authority(), user, "guess"); method != 50 { // connection.close
		t.Errorf("with another password RabbitMQ answers with method %d", method)
	}
	stranger(t, ports.Clients)
	if _, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", 5672)); err == nil {
		t.Log("another RabbitMQ is on this machine")
	}
}

// greet logs in by AMQP 0-9-1 (sections 2.2.4 and 4.2), and returns the method of the answer.
func greet(t *testing.T, port int, member Place, ca, user, password string) int {
	pair, err := tls.LoadX509KeyPair(member.File("cert.pem"), member.File("key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(ca)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	method := func() int {
		head := make([]byte, 7)
		if _, err := io.ReadFull(conn, head); err != nil {
			t.Fatal(err)
		}
		body := make([]byte, int(head[3])<<24|int(head[4])<<16|int(head[5])<<8|int(head[6])+1)
		if _, err := io.ReadFull(conn, body); err != nil {
			t.Fatal(err)
		}
		return int(body[2])<<8 | int(body[3])
	}
	fmt.Fprint(conn, "AMQP\x00\x00\x09\x01")
	if got := method(); got != 10 { // connection.start
		t.Fatalf("RabbitMQ greets with method %d", got)
	}
	// Properties: the client wants to be told why it is refused.
	properties := "\x0ccapabilitiesF\x00\x00\x00\x1e\x1cauthentication_failure_closet\x01"
	properties = strings.Replace(properties, "\x00\x00\x00\x1e", "\x00\x00\x00"+string(rune(len("\x1cauthentication_failure_closet\x01"))), 1)
	response := "\x00" + user + "\x00" + password
	body := "\x00\x0a\x00\x0b\x00\x00\x00" + string(rune(len(properties))) + properties + "\x05PLAIN" + "\x00\x00\x00" + string(rune(len(response))) + response + "\x05en_US"
	fmt.Fprintf(conn, "\x01\x00\x00\x00\x00\x00%c%s\xce", rune(len(body)), body)
	return method()
}

// stranger proves that who has no certificate is not served.
func stranger(t *testing.T, port int) {
	conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprint(conn, "AMQP\x00\x00\x09\x01")
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("without a certificate, %d byte was read", n)
	}
}

func free(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// start runs a program until it listens; end kills it and all that it has started, and waits.
func start(t *testing.T, p Place, prepare func() (*exec.Cmd, error), port int) (end func()) {
	cmd, err := prepare()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	end = func() {
		for _, pid := range processesOf(p) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		<-ended
		until.True(t, "all of it is gone", func() bool { return len(processesOf(p)) == 0 })
	}
	t.Cleanup(end)
	until.True(t, "it listens", func() bool {
		select {
		case <-ended:
			t.Fatalf("it has ended:\n%s", process.LastWords(log))
		default:
		}
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	if who, err := os.Stat(fmt.Sprintf("/proc/%d", cmd.Process.Pid)); err != nil || who.Sys().(*syscall.Stat_t).Uid != p.UID {
		t.Errorf("it does not run as user %d: %v", p.UID, err)
	}
	return end
}

// processesOf are those that have the place's data as their home.
func processesOf(p Place) (out []int) {
	list, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range list {
		if text, err := os.ReadFile(file); err == nil && strings.Contains("\x00"+string(text), "\x00HOME="+p.Data()+"\x00") {
			var pid int
			_, _ = fmt.Sscanf(file, "/proc/%d/", &pid)
			out = append(out, pid)
		}
	}
	return out
}
