package servers

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trivet.dev/trivet/test/until"
)

// RabbitMQ is a broker of one node, without plugins.
type RabbitMQ struct {
	process
	URL            string // amqp://127.0.0.1:PORT, or amqps://
	User, Password string
	environment    []string
}

// where the distribution has its programs: those in PATH begin it as a user of its own.
const rabbitPrograms = "/usr/lib/rabbitmq/bin"

// StartRabbitMQ starts a broker; config are lines of its rabbitmq.conf that only the test needs.
// The test is skipped where there is none.
func StartRabbitMQ(t testing.TB, config ...string) *RabbitMQ {
	t.Helper()
	r := PrepareRabbitMQ(t, config...)
	r.begin()
	return r
}

// StartRabbitMQOverTLS starts one that lets nobody in who does not show the client's certificate.
func StartRabbitMQOverTLS(t testing.TB, c Certificates, config ...string) *RabbitMQ {
	t.Helper()
	r := PrepareRabbitMQ(t,
		append([]string{"ssl_options.cacertfile = " + c.File("ca.pem"),
			"ssl_options.certfile = " + c.File("server.pem"),
			"ssl_options.keyfile = " + c.File("server.key"), "ssl_options.verify = verify_peer",
			"ssl_options.fail_if_no_peer_cert = true"}, config...)...)
	r.URL = "amqps" + strings.TrimPrefix(r.URL, "amqp")
	r.configure(strings.Replace(r.config(), "listeners.tcp.1", "listeners.tcp = none\nlisteners.ssl.1", 1))
	r.begin()
	return r
}

// PrepareRabbitMQ is StartRabbitMQ for a broker that the test itself starts.
func PrepareRabbitMQ(t testing.TB, config ...string) *RabbitMQ {
	t.Helper()
	if _, err := os.Stat(rabbitPrograms); err != nil {
		t.Skip("there is no RabbitMQ: apt-get install rabbitmq-server")
	}
	at, mapper := Free(t), Free(t)
	_, port, _ := net.SplitHostPort(at)
	_, distribution, _ := net.SplitHostPort(Free(t))
	_, mapperPort, _ := net.SplitHostPort(mapper)
	r := &RabbitMQ{process: process{t: t, dir: t.TempDir(), listens: at}, URL: "amqp://" + at, User: "trivet",
		Password: "secret"}
	r.configure(strings.Join(append([]string{"listeners.tcp.1 = " + at, "default_user = " + r.User,
		"default_pass = " + r.Password}, config...), "\n"))
	if err := os.WriteFile(filepath.Join(r.dir, "plugins"), []byte("[].\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.environment = append(os.Environ(), "HOME="+r.dir, "RABBITMQ_NODENAME=t@localhost", "RABBITMQ_NODE_PORT="+port,
		"RABBITMQ_DIST_PORT="+distribution,
		"RABBITMQ_MNESIA_BASE="+filepath.Join(r.dir, "mnesia"), "RABBITMQ_LOG_BASE="+r.dir, "RABBITMQ_LOGS=-",
		"RABBITMQ_CONFIG_FILE="+r.configFile(), "RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(r.dir, "plugins"),
		"RABBITMQ_PID_FILE="+filepath.Join(r.dir, "pid"), "ERL_EPMD_PORT="+mapperPort, "ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_FLAGS=-start_epmd false", "RUNNING_UNDER_SYSTEMD=1") // the last: the script becomes the broker
	r.command = func() *exec.Cmd {
		c := exec.Command(filepath.Join(rabbitPrograms, "rabbitmq-server"))
		c.Env = r.environment
		return c
	}
	// Erlang's own register of names. One that a broker or rabbitmqctl starts by itself outlives
	// it, and would be there as soon as this one has ended: they must not.
	epmd := &process{t: t, dir: t.TempDir(), listens: mapper, command: func() *exec.Cmd {
		return exec.Command("epmd", "-port", mapperPort, "-address", "127.0.0.1")
	}}
	epmd.begin()
	return r
}

func (r *RabbitMQ) configFile() string { return filepath.Join(r.dir, "rabbitmq.conf") }

func (r *RabbitMQ) configure(text string) {
	if err := os.WriteFile(r.configFile(), []byte(text+"\n"), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *RabbitMQ) config() string {
	b, err := os.ReadFile(r.configFile())
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// Start starts it, after Kill again, and waits until it lets clients in.
func (r *RabbitMQ) Start() {
	r.t.Helper()
	r.process.Start()
	r.ready()
}

func (r *RabbitMQ) begin() {
	r.t.Helper()
	r.process.begin()
	r.ready()
}

// ready waits until it has started whole: it listens before.
func (r *RabbitMQ) ready() {
	r.t.Helper()
	until.True(r.t, "RabbitMQ has started", func() bool {
		return r.try("await_startup", "--timeout", "5") == nil
	})
}

func (r *RabbitMQ) try(args ...string) error { return r.control(args).Run() }

// Control is rabbitmqctl, and returns what that prints.
func (r *RabbitMQ) Control(args ...string) string {
	r.t.Helper()
	out, err := r.control(args).CombinedOutput()
	if err != nil {
		r.t.Fatalf("rabbitmqctl %v: %v: %s", args, err, out)
	}
	return string(out)
}

func (r *RabbitMQ) control(args []string) *exec.Cmd {
	c := exec.Command(filepath.Join(rabbitPrograms, "rabbitmqctl"),
		append([]string{"-q", "-n", "t@localhost"}, args...)...)
	c.Env = r.environment
	return c
}
