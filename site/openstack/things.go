package openstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"trivet.dev/trivet/site"
)

// kind is a kind of things in Neutron, all of which are listed, made and deleted alike.
type kind struct {
	one, many string // as its API calls them
	title     string // as users do
}

var (
	networks       = kind{"network", "networks", "network"}
	subnets        = kind{"subnet", "subnets", "subnet"}
	ports          = kind{"port", "ports", "port"}
	routers        = kind{"router", "routers", "router"}
	floatingIPs    = kind{"floatingip", "floatingips", "floating IP"}
	securityGroups = kind{"security_group", "security-groups", "security group"}
)

// key is what its API calls many of a kind within an answer.
func (k kind) key() string { return strings.ReplaceAll(k.many, "-", "_") }

// thing is what is read of one; which of it there is depends on its kind.
type thing struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Status      string `json:"status"`

	NetworkID string `json:"network_id"`
	DeviceID  string `json:"device_id"`
	PortID    string `json:"port_id"`
	FixedIPs  []struct {
		SubnetID string `json:"subnet_id"`
		Address  string `json:"ip_address"`
	} `json:"fixed_ips"`
	FloatingAddress string   `json:"floating_ip_address"`
	MTU             int      `json:"mtu"`
	External        bool     `json:"router:external"`
	Subnets         []string `json:"subnets"`
	Gateway         *struct {
		NetworkID string `json:"network_id"`
	} `json:"external_gateway_info"`
}

// list lists things that a query selects, the whole of it whatever Neutron says at a time.
func (a *account) list(ctx context.Context, k kind, query url.Values) (out []thing, err error) {
	for at := a.neutron.ServiceURL(k.many) + "?" + query.Encode(); at != ""; {
		var answer map[string]json.RawMessage
		if _, err := a.neutron.Get(ctx, at, &answer, nil); err != nil {
			return nil, explained("list "+k.title+"s", err)
		}
		var page []thing
		var links []struct{ Href, Rel string }
		if err := errors.Join(json.Unmarshal(answer[k.key()], &page), decode(answer[k.key()+"_links"], &links)); err != nil {
			return nil, fmt.Errorf("list %ss: %w", k.title, err)
		}
		out, at = append(out, page...), ""
		for _, l := range links {
			if l.Rel == "next" && len(page) > 0 {
				at = l.Href
			}
		}
	}
	return out, nil
}

// decode decodes what may not be there.
func decode(raw json.RawMessage, to any) error {
	if raw == nil {
		return nil
	}
	return json.Unmarshal(raw, to)
}

// create makes a thing with a name and a description that no other has. Where a service does not
// say what became of a request, it is looked whether the thing is there before it is asked for
// again.
func (a *account) create(ctx context.Context, k kind, body map[string]any) (made thing, err error) {
	name, _ := body["name"].(string)
	description, _ := body["description"].(string)
	for tries := uint(1); ; tries++ {
		var answer map[string]thing
		_, err = a.neutron.Post(answered(ctx), a.neutron.ServiceURL(k.many), map[string]any{k.one: body}, &answer, created())
		if err == nil {
			return answer[k.one], nil
		}
		if tries >= maxTries || !passing(err) {
			return made, explained("make the "+k.title+" "+name, err)
		}
		if e := sleep(ctx, pause(tries)); e != nil {
			return made, explained("make the "+k.title+" "+name, err)
		}
		query := url.Values{"description": {description}}
		if k != floatingIPs { // they have no names
			query.Set("name", name)
		}
		there, e := a.list(ctx, k, query)
		if e != nil {
			return made, e
		}
		if i := slices.IndexFunc(there, func(t thing) bool { return k != floatingIPs || t.PortID == body["port_id"] }); i >= 0 {
			return there[i], nil
		}
	}
}

// answered is for a request that makes something: who is interrupted waits for the answer, which
// comes within the limit of patience, as else the thing could be made after all has been removed.
func answered(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// created are options of a request that makes something; gophercloud writes into them.
func created() *gophercloud.RequestOpts {
	return &gophercloud.RequestOpts{OkCodes: []int{http.StatusCreated}}
}

// remove deletes a thing; one that is not there is no error. What is in use is tried again for as
// long as ctx lasts: what uses it may be going.
func (a *account) remove(ctx context.Context, k kind, id string) error {
	for tries := uint(1); ; tries++ {
		_, err := a.neutron.Delete(ctx, a.neutron.ServiceURL(k.many, id), nil)
		switch {
		case err == nil, gophercloud.ResponseCodeIs(err, http.StatusNotFound):
			return nil
		case !gophercloud.ResponseCodeIs(err, http.StatusConflict) || tries >= maxTries:
			return explained("delete the "+k.title+" "+id, err)
		}
		if e := sleep(ctx, pause(tries)); e != nil {
			return explained("delete the "+k.title+" "+id, err)
		}
	}
}

// mark is how things say what lab they are of: in their description, or in an instance's metadata.
// Neutron takes a description in the request that makes a thing, so nothing is ever without it.
const mark = "Trivet lab "

func markOf(al site.Allocation) string {
	return fmt.Sprintf("%s%s key=%s by=%s since=%s", mark, al.Lab, al.Key, al.By, al.Since)
}

// ofMark reads a mark.
func ofMark(s string) (al site.Allocation, is bool) {
	rest, is := strings.CutPrefix(s, mark)
	fields := strings.Fields(rest)
	if !is || len(fields) != 4 {
		return al, false
	}
	al.Lab = fields[0]
	for i, to := range []*string{&al.Key, &al.By, &al.Since} {
		name, value, is := strings.Cut(fields[i+1], "=")
		if !is || name != []string{"key", "by", "since"}[i] || value == "" {
			return al, false
		}
		*to = value
	}
	_, err := time.Parse(time.RFC3339, al.Since)
	return al, err == nil
}
