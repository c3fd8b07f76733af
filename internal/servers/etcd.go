package servers

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
)

// EtcdPorts are those of a lab's etcd on the loopback device.
type EtcdPorts struct {
	Clients int `json:"clients"`
	Peers   int `json:"peers"`
}

// Short leases need fast heartbeats: etcd grants none shorter than one and a half election
// timeouts. With a single etcd there are no elections when a busy machine delays heartbeats.
const (
	heartbeat = "20"  // ms
	election  = "200" // ms
)

// EtcdCommand prepares an etcd in a place that has its certificate.
func EtcdCommand(p Place, ports EtcdPorts) (*exec.Cmd, error) {
	program, err := Etcd.Find()
	if err != nil {
		return nil, err
	}
	clients, peers := loopback("https", ports.Clients), loopback("https", ports.Peers)
	var env []string
	if runtime.GOARCH != "amd64" { // etcd 3.4 requires explicit consent
		env = append(env, "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH)
	}
	return p.Command(program, []string{
		"--name=lab", "--data-dir=" + filepath.Join(p.Data(), "etcd"),
		"--listen-client-urls=" + clients, "--advertise-client-urls=" + clients,
		"--listen-peer-urls=" + peers, "--initial-advertise-peer-urls=" + peers, "--initial-cluster=lab=" + peers,
		"--cert-file=" + p.File("cert.pem"), "--key-file=" + p.File("key.pem"), "--trusted-ca-file=" + p.Authority(),
		"--client-cert-auth", "--peer-cert-file=" + p.File("cert.pem"), "--peer-key-file=" + p.File("key.pem"),
		"--peer-trusted-ca-file=" + p.Authority(), "--peer-client-cert-auth", "--heartbeat-interval=" + heartbeat,
		"--election-timeout=" + election,
		// Heartbeats are written several times a second, and the lab's directory is in memory.
		"--auto-compaction-mode=revision", "--auto-compaction-retention=1000", "--snapshot-count=5000",
		"--max-snapshots=1", "--max-wals=1", "--quota-backend-bytes=268435456", "--logger=zap", "--log-outputs=stderr",
		"--log-level=warn",
	}, env), nil
}

// EtcdURL is where clients find it.
func EtcdURL(ports EtcdPorts) string { return loopback("https", ports.Clients) }

func loopback(scheme string, port int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port) }
