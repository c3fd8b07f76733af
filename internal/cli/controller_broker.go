package cli

import (
	"fmt"

	"github.com/spf13/pflag"

	"trivet.dev/trivet/internal/servers"
)

// brokerFlags say by which RabbitMQ the members of a cluster tell each other how busy they are.
func brokerFlags(f *pflag.FlagSet, b *servers.Broker) {
	f.StringVar(&b.URL, "broker", "", "RabbitMQ that carries what members of a cluster report: amqps://HOST:PORT[/VHOST]")
	f.StringVar(&b.Login, "broker-login", "", "file with user:password for it")
	f.StringVar(&b.CA, "broker-ca", "", "certificates of the CA that signs its certificate (default: those that this machine trusts)")
	f.StringVar(&b.Certificate, "broker-cert", "", "certificate that it asks for")
	f.StringVar(&b.Key, "broker-key", "", "its private key")
}

func checkBroker(b servers.Broker) error {
	if err := b.Check(); err != nil {
		return fmt.Errorf("--broker: %w", err)
	}
	return nil
}
