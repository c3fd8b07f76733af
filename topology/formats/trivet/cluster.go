package trivet

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

func init() { // not in its literal, which they lead back to
	deferredSchemas["members"], deferredSchemas["server"] = membersSchema, serverSchema
}

// clusterOptions describe topology.Cluster.
type clusterOptions struct {
	Members deferred     `yaml:"members" as:"members" doc:"How many, or their names: 3, [a, b, c], {a: {cpu: 0.5}, b: }."`
	CPU     topology.CPU `yaml:"cpu" doc:"Limit of each member: 0.5 (CPUs) or 25% (of the machine)."`
	Store   deferred     `yaml:"store" as:"server" doc:"An etcd that exists elsewhere, in place of the lab's own: its address https://HOST:PORT[,…][/PREFIX], or {address: …, ca: …, certificate: …, key: …, login: …}."`
	Broker  deferred     `yaml:"broker" as:"server" doc:"A RabbitMQ that exists elsewhere, in place of the lab's own: its address amqps://HOST:PORT[/VHOST], or {address: …, ca: …, certificate: …, key: …, login: …}."`
}

// memberOptions describe topology.Member.
type memberOptions struct {
	CPU topology.CPU `yaml:"cpu" doc:"Limit of this member."`
	On  string       `yaml:"on" doc:"In a lab over several machines (--on): the machine that the member runs at, or a label of machines; head is this one."`
}

// serverOptions describe topology.Server.
type serverOptions struct {
	Address     string `yaml:"address" doc:"Its URL, without a password."`
	CA          string `yaml:"ca" doc:"File with the certificates of the CA that signs its own; those that this machine trusts when missing."`
	Certificate string `yaml:"certificate" doc:"File with the certificate that it asks for."`
	Key         string `yaml:"key" doc:"File with that one's private key."`
	Login       string `yaml:"login" doc:"File with user:password."`
}

const clusterHint = "write cluster: 3, or {members: [a, b, c], cpu: 0.5}"

// cluster reads 3, [a, b, c], or {members: [a, b, c], cpu: 0.5, store: …, broker: …}.
func (d *decoder) cluster(v *yamlfile.Value) *topology.Cluster {
	c := &topology.Cluster{Pos: v.Pos}
	switch v.Shape {
	case yamlfile.Scalar, yamlfile.List:
		c.Members = d.members(v)
	case yamlfile.Mapping:
		var o clusterOptions
		d.options(v, &o, "cluster")
		c.CPU, c.Store, c.Broker = o.CPU, d.server(o.Store.Value, "store"), d.server(o.Broker.Value, "broker")
		if o.Members.Value == nil {
			d.add(v, clusterHint, "cluster: it has no members")
			return nil
		}
		c.Members = d.members(o.Members.Value)
	default:
		d.add(v, clusterHint, "cluster: needs members, not %s", v)
	}
	if c.Members == nil {
		return nil // it has been said why
	}
	return c
}

// members reads 3, [a, b, c], or {a: {cpu: 0.5}, b: }; nil: there is an error.
func (d *decoder) members(v *yamlfile.Value) []topology.Member {
	out := []topology.Member{}
	switch v.Shape {
	case yamlfile.Scalar:
		n, err := strconv.Atoi(v.Text)
		if err != nil || n < 1 || n > topology.MaxMembers {
			d.add(v, fmt.Sprintf("write a number from 1 to %d, or [a, b, c]", topology.MaxMembers),
				"cluster: it cannot have %q members", formats.Clip(v.Text))
			return nil
		}
		return topology.NumberedMembers(n)
	case yamlfile.List:
		for _, item := range v.Items {
			d.spend(item, 1)
			if item.Shape != yamlfile.Scalar {
				d.add(item, clusterHint, "cluster: a member needs a name, not %s", item)
				return nil
			}
			out = append(out, topology.Member{Name: item.Text, Pos: item.Pos})
		}
	case yamlfile.Mapping:
		for _, p := range v.Pairs {
			d.spend(p.Key, 1)
			var o memberOptions
			d.options(p.Value, &o, "member")
			out = append(out, topology.Member{Name: p.Key.Text, CPU: o.CPU, On: o.On, Pos: p.Key.Pos})
		}
	default:
		d.add(v, clusterHint, "cluster: needs members, not %s", v)
		return nil
	}
	return out
}

// server reads an address, or {address: …, ca: …, …}.
func (d *decoder) server(v *yamlfile.Value, what string) *topology.Server {
	if v == nil || v.Shape == yamlfile.Nothing {
		return nil
	}
	o := serverOptions{}
	if v.Shape == yamlfile.Scalar {
		o.Address = v.Text
	} else {
		d.options(v, &o, what)
	}
	s := &topology.Server{Pos: v.Pos}
	copyFields(s, o)
	return s
}

// clusterText writes a cluster in one line.
func clusterText(c *topology.Cluster) string {
	if c.Numbered() && c.CPU == (topology.CPU{}) && c.Store == nil && c.Broker == nil {
		return strconv.Itoa(len(c.Members))
	}
	words := []string{"members: " + membersText(c)}
	if c.CPU != (topology.CPU{}) {
		words = append(words, "cpu: "+quoteLeaf(c.CPU.String()))
	}
	if c.Store != nil {
		words = append(words, "store: "+serverText(c.Store))
	}
	if c.Broker != nil {
		words = append(words, "broker: "+serverText(c.Broker))
	}
	return "{" + strings.Join(words, ", ") + "}"
}

func membersText(c *topology.Cluster) string {
	if c.Numbered() {
		return strconv.Itoa(len(c.Members))
	}
	words := make([]string, len(c.Members))
	for i, m := range c.Members {
		var options []string
		if m.CPU != (topology.CPU{}) {
			options = append(options, "cpu: "+quoteLeaf(m.CPU.String()))
		}
		if m.On != "" {
			options = append(options, "on: "+yamlfile.Quote(m.On))
		}
		words[i] = yamlfile.FlowKey(m.Name) + ": {" + strings.Join(options, ", ") + "}"
	}
	return "{" + strings.Join(words, ", ") + "}"
}

func serverText(s *topology.Server) string {
	var words []string
	for _, f := range [][2]string{{"address", s.Address}, {"ca", s.CA}, {"certificate", s.Certificate}, {"key", s.Key},
		{"login", s.Login}} {
		if f[1] != "" {
			words = append(words, f[0]+": "+yamlfile.Quote(f[1]))
		}
	}
	return "{" + strings.Join(words, ", ") + "}"
}

func clusterSchema() object {
	return orNothing(anyOf(countSchema(), namesSchema(), structSchema(reflect.TypeFor[clusterOptions](), "cluster")))
}

func countSchema() object {
	return object{"type": "integer", "minimum": 1, "maximum": topology.MaxMembers}
}

func namesSchema() object { return listOf(object{"type": []string{"string", "number"}}) }

func membersSchema() object {
	options := orNothing(structSchema(reflect.TypeFor[memberOptions](), "member"))
	return anyOf(countSchema(), namesSchema(), object{"type": "object", "additionalProperties": options})
}

func serverSchema() object {
	return orNothing(anyOf(object{"type": "string"}, structSchema(reflect.TypeFor[serverOptions](), "server")))
}
