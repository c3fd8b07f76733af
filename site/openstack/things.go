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

// kind is a kind of resource in Neutron; all kinds are listed, made and deleted alike.
type kind struct {
	one, many string // names in the API
	title     string // name for users
}

var (
	networks       = kind{"network", "networks", "network"}
	subnets        = kind{"subnet", "subnets", "subnet"}
	ports          = kind{"port", "ports", "port"}
	routers        = kind{"router", "routers", "router"}
	floatingIPs    = kind{"floatingip", "floatingips", "floating IP"}
	securityGroups = kind{"security_group", "security-groups", "security group"}
)

// key is the field for resources of this kind in responses.
func (k kind) key() string { return strings.ReplaceAll(k.many, "-", "_") }

// thing is a resource; which fields are set depends on its kind.
type thing struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`

	PortID      string `json:"port_id"`
	Device      string `json:"device_id"`
	DeviceOwner string `json:"device_owner"`
	FixedIPs    []struct {
		Address string `json:"ip_address"`
		Subnet  string `json:"subnet_id"`
	} `json:"fixed_ips"`
	MAC        string `json:"mac_address"`
	Status     string `json:"status"`
	VIF        string `json:"binding:vif_type"`
	VIFDetails struct {
		Bridge   string `json:"bridge_name"`
		Datapath string `json:"datapath_type"`
	} `json:"binding:vif_details"`
	FloatingAddress string   `json:"floating_ip_address"`
	External        bool     `json:"router:external"`
	Subnets         []string `json:"subnets"`
	MTU             int      `json:"mtu"`
	CIDR            string   `json:"cidr"`
}

// list returns all resources that match a query, page by page.
func (a *account) list(ctx context.Context, k kind, query url.Values) (out []thing, err error) {
	for at := a.neutron.ServiceURL(k.many) + "?" + query.Encode(); at != ""; {
		var answer map[string]json.RawMessage
		if _, err := a.neutron.Get(ctx, at, &answer, nil); err != nil {
			return nil, explained("list "+k.title+"s", err)
		}
		var page []thing
		var links []struct{ Href, Rel string }
		if err := errors.Join(json.Unmarshal(answer[k.key()], &page),
			decode(answer[k.key()+"_links"], &links)); err != nil {
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

// marked lists the project's resources of a kind with the mark of a key; "": with any mark.
func (a *account) marked(ctx context.Context, k kind, key string) ([]thing, error) {
	all, err := a.list(ctx, k,
		url.Values{"project_id": {a.project},
			"fields": {"id", "name", "description", "status", "device_id", "device_owner"}})
	return slices.DeleteFunc(all,
		func(t thing) bool { al, ok := ofMark(t.Description); return !ok || key != "" && al.Key != key }), err
}

// decode decodes a field that may be missing.
func decode(raw json.RawMessage, to any) error {
	if raw == nil {
		return nil
	}
	return json.Unmarshal(raw, to)
}

// create makes a resource whose name and description together are unique.
func (a *account) create(ctx context.Context, k kind, body map[string]any) (made thing, err error) {
	name, _ := body["name"].(string)
	description, _ := body["description"].(string)
	query := url.Values{"description": {description}}
	if k != floatingIPs { // they have no names
		query.Set("name", name)
	}
	err = once(ctx, "make the "+k.title+" "+name, func(ctx context.Context) error {
		var answer map[string]thing
		_, err := a.neutron.Post(ctx, a.neutron.ServiceURL(k.many), map[string]any{k.one: body}, &answer, created())
		made = answer[k.one]
		return err
	}, func() (bool, error) {
		there, err := a.list(ctx, k, query)
		i := slices.IndexFunc(there, func(t thing) bool { return k != floatingIPs || t.PortID == body["port_id"] })
		if i >= 0 {
			made = there[i]
		}
		return i >= 0, err
	})
	return made, err
}

// once makes a request that creates something. If its outcome is unknown, there reports whether it
// was carried out, before it is repeated. The end of ctx does not interrupt a request: its outcome,
// which is known within the time limit, is awaited, as otherwise something could be created after
// everything was removed.
func once(ctx context.Context, what string, ask func(ctx context.Context) error, there func() (bool, error)) error {
	for tries := uint(1); ; tries++ {
		err := ask(context.WithoutCancel(ctx))
		if err == nil {
			return nil
		}
		if tries >= maxTries || !passing(err) || sleep(ctx, pause(tries)) != nil {
			return explained(what, err)
		}
		if done, err := there(); done || err != nil {
			return err
		}
	}
}

// created returns the options of a request that creates something; gophercloud writes to them.
func created() *gophercloud.RequestOpts {
	return &gophercloud.RequestOpts{OkCodes: []int{http.StatusCreated}}
}

// remove deletes a resource; a missing one is no error. While the resource is in use, it tries
// again, up to maxTries times or until ctx ends: its user may be about to go.
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

// mark begins the text that says which lab a resource belongs to: in its description, or in an
// instance's metadata. Neutron accepts a description in the request that creates a resource, so no
// resource is ever without it.
const mark = "Trivet lab "

func markOf(al site.Allocation) string {
	return fmt.Sprintf("%s%s key=%s by=%s since=%s", mark, al.Lab, al.Key, al.By, al.Since)
}

// ofMark parses a mark.
func ofMark(s string) (al site.Allocation, ok bool) {
	rest, ok := strings.CutPrefix(s, mark)
	fields := strings.Fields(rest)
	if !ok || len(fields) != 4 {
		return al, false
	}
	al.Lab = fields[0]
	for i, to := range []*string{&al.Key, &al.By, &al.Since} {
		name, value, ok := strings.Cut(fields[i+1], "=")
		if !ok || name != []string{"key", "by", "since"}[i] || value == "" {
			return al, false
		}
		*to = value
	}
	_, err := time.Parse(time.RFC3339, al.Since)
	return al, err == nil
}
