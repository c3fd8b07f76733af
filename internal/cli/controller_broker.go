package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"trivet.dev/trivet/cluster/report"
	"trivet.dev/trivet/internal/credentials"
)

// brokerFlags say which RabbitMQ carries the load reports of a cluster's members.
type brokerFlags struct {
	url, login string
	tls        credentials.TLS
}

func (b *brokerFlags) register(f *pflag.FlagSet) {
	f.StringVar(&b.url, "broker", "",
		"RabbitMQ that carries what members of a cluster report: amqps://HOST[:PORT][/VHOST]")
	f.StringVar(&b.login, "broker-login", "", "file with user:password for it")
	f.StringVar(&b.tls.CA, "broker-ca", "",
		"certificates of the CA that signs its certificate (default: those that this machine trusts)")
	f.StringVar(&b.tls.Certificate, "broker-cert", "", "certificate that it asks for")
	f.StringVar(&b.tls.Key, "broker-key", "", "its private key")
}

// reportsBy returns the broker from the flags; none without --broker.
func (r running) reportsBy() (b report.Broker, err error) {
	switch {
	case r.broker == brokerFlags{}:
		return b, nil
	case r.broker.url == "":
		return b, errors.New("--broker: files for a broker are given, and no broker")
	case r.member == "":
		return b, errors.New("--broker: needs --member, as the members of a cluster report by it")
	}
	if b, err = report.ParseBroker(r.broker.url); err == nil && r.broker.login != "" {
		err = b.Login(r.broker.login)
	}
	if b.TLS = r.broker.tls; err == nil {
		err = b.Check()
	}
	if err != nil {
		return b, fmt.Errorf("--broker: %w", err)
	}
	return b, nil
}
