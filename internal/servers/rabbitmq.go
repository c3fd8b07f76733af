package servers

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
)

// RabbitMQPorts are those of a lab's RabbitMQ on the loopback device.
type RabbitMQPorts struct {
	Clients int `json:"clients"`
	Nodes   int `json:"nodes"` // of Erlang, to which nobody connects
	Mapper  int `json:"mapper"`
}

// brokerUser is the user as whom a lab's members log in to its RabbitMQ.
const brokerUser = "lab"

// rabbitConfig configures a RabbitMQ for small messages of a few programs. (Its documentation:
// rabbitmq.conf, TLS.)
const rabbitConfig = `listeners.tcp = none
listeners.ssl.1 = 127.0.0.1:%d
ssl_options.cacertfile = %s
ssl_options.certfile = %s
ssl_options.keyfile = %s
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
num_acceptors.ssl = 2
default_user = %s
default_pass = %s
loopback_users = none
log.console = true
log.console.level = warning
log.file = false
vm_memory_high_watermark.absolute = 256MB
disk_free_limit.absolute = 8MB
`

// RabbitMQCommand prepares a RabbitMQ in a place that has its certificate. Node name, cookie and
// port mapper are its own: it does not connect to any other Erlang on the machine.
func RabbitMQCommand(p Place, ports RabbitMQPorts) (*exec.Cmd, error) {
	program, err := RabbitMQ.Find()
	if err != nil {
		return nil, err
	}
	password, err := p.secret("password")
	if err != nil {
		return nil, err
	}
	cookie, err := p.secret("cookie")
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf(rabbitConfig, ports.Clients, p.Authority(), p.File("cert.pem"), p.File("key.pem"), brokerUser,
		password)
	for name, text := range map[string]string{"rabbitmq.conf": config, "plugins": "[].\n", "env.conf": "",
		"vm.args": "-setcookie " + cookie + "\n"} {
		if err := p.Write(name, []byte(text)); err != nil {
			return nil, err
		}
	}
	data := func(name string) string { return filepath.Join(p.Data(), name) }
	return p.Command(program, nil, []string{
		"RABBITMQ_NODENAME=lab@localhost", "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(ports.Nodes), "ERL_EPMD_PORT=" + strconv.Itoa(ports.Mapper),
		"ERL_EPMD_ADDRESS=127.0.0.1", "RABBITMQ_CONF_ENV_FILE=" + p.File("env.conf"),
		"RABBITMQ_CONFIG_FILE=" + p.File("rabbitmq.conf"), "RABBITMQ_ENABLED_PLUGINS_FILE=" + p.File("plugins"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + p.File("advanced.config"), "RABBITMQ_GENERATED_CONFIG_DIR=" + data("config"),
		"RABBITMQ_MNESIA_BASE=" + data("mnesia"), "RABBITMQ_LOG_BASE=" + data("log"),
		"RABBITMQ_PID_FILE=" + data("pid"), "RABBITMQ_FEATURE_FLAGS_FILE=" + data("features"),
		// One thread, which sleeps when idle; the cookie is in a file, and not among the arguments,
		// which everyone can see.
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 1:1 +SDio 1 +sbwt none +sbwtdcpu none +sbwtdio none -args_file " +
			p.File("vm.args") +
			" -kernel inet_dist_use_interface {127,0,0,1}",
	}), nil
}

// RabbitMQURL is where clients find it.
func RabbitMQURL(ports RabbitMQPorts) string { return loopback("amqps", ports.Clients) }

// RabbitMQLogin returns the contents of a login file for clients: user:password.
func RabbitMQLogin(p Place) ([]byte, error) {
	password, err := p.secret("password")
	return []byte(brokerUser + ":" + password + "\n"), err
}
