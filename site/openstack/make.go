package openstack

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/keypairs"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"golang.org/x/sync/errgroup"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/site"
)

// atOnce limits concurrent requests: more would slow Neutron down.
const atOnce = 4

// inner is the subnet of the network made for instances. Nothing else is in it, and nodes of a lab
// do not see it.
const inner = "10.254.0.0/16"

// building is the state while a lab's instances are being made.
type building struct {
	*account
	found
	site.Allocation
	mark string
	keys keys
	made []*site.Machine // those of the list that are made
	say  func(string)
}

// Make makes the instances of a list. Everything is created with its mark in one request, except
// security group rules and router interfaces, which are deleted with what they belong to.
func (a *account) Make(ctx context.Context, l *site.List, al site.Allocation, say func(string)) error {
	if len(l.Machines) == 0 {
		return nil
	}
	f, err := a.find(ctx, l)
	if err != nil {
		return err
	}
	if err := a.room(ctx, f); err != nil {
		return err
	}
	b := &building{account: a, found: f, Allocation: al, mark: markOf(al), made: a.options.made(l), say: say}
	l.Provided.Made = map[string]map[string]string{}
	if len(b.made) == 0 {
		return b.entered(ctx, l)
	}
	if b.keys, err = newKeys(a.user, al, b.made); err != nil {
		return err
	}
	say("a network")
	group, err := b.securityGroup(ctx)
	if err != nil {
		return err
	}
	if b.network == nil {
		if err := b.makeNetwork(ctx); err != nil {
			return err
		}
	}
	say(words.Plural(len(b.made), "port"))
	at, err := b.makePorts(ctx, group.ID)
	if err != nil {
		return err
	}
	say(words.Plural(len(b.made), "instance"))
	if err := b.makeServers(ctx, at); err != nil {
		return err
	}
	if err := b.reach(ctx, l, at); err != nil {
		return err
	}
	if err := b.booted(ctx, l); err != nil {
		return err
	}
	return b.entered(ctx, l)
}

// called returns the name of a thing made for the lab.
func (b *building) called(what string) string { return called(b.Allocation, what) }

func called(a site.Allocation, what string) string { return "trivet-" + a.Lab + "-" + what }

func (b *building) make(ctx context.Context, k kind, what string, body map[string]any) (thing, error) {
	body["description"] = b.mark
	if k != floatingIPs {
		body["name"] = b.called(what)
	}
	return b.create(ctx, k, body)
}

// securityGroup makes the group that permits SSH, and traffic among the lab's instances.
func (b *building) securityGroup(ctx context.Context) (thing, error) {
	group, err := b.make(ctx, securityGroups, "instances", map[string]any{})
	if err != nil {
		return group, err
	}
	rules := []map[string]any{
		{"ethertype": "IPv4", "protocol": "tcp", "port_range_min": 22, "port_range_max": 22},
		{"ethertype": "IPv4", "protocol": "icmp"},
		{"ethertype": "IPv4", "remote_group_id": group.ID},
	}
	for _, r := range rules {
		r["direction"], r["security_group_id"] = "ingress", group.ID
	}
	asked := false
	return group, once(ctx, "make the rules of the security group "+b.called("instances"),
		func(ctx context.Context) error {
			_, err := b.neutron.Post(ctx, b.neutron.ServiceURL("security-group-rules"),
				map[string]any{"security_group_rules": rules}, nil, created())
			if asked && gophercloud.ResponseCodeIs(err, http.StatusConflict) { // they exist: the answer was lost
				return nil
			}
			asked = true
			return err
		}, func() (bool, error) { return false, nil })
}

// makeNetwork makes a network, and the router through which it is reached.
func (b *building) makeNetwork(ctx context.Context) error {
	n, err := b.make(ctx, networks, "instances", map[string]any{})
	if err != nil {
		return err
	}
	subnet, err := b.make(ctx, subnets, "instances", map[string]any{"network_id": n.ID, "ip_version": 4, "cidr": inner})
	if err != nil {
		return err
	}
	r, err := b.make(ctx, routers, "instances",
		map[string]any{"external_gateway_info": map[string]any{"network_id": b.external.ID}})
	if err != nil {
		return err
	}
	b.network = &n
	return once(ctx, "join the router "+b.called("instances")+" to its network", func(ctx context.Context) error {
		_, err := b.neutron.Put(ctx, b.neutron.ServiceURL("routers", r.ID, "add_router_interface"),
			map[string]any{"subnet_id": subnet.ID}, nil,
			&gophercloud.RequestOpts{OkCodes: []int{http.StatusOK}})
		if err == nil {
			return nil
		}
		// The previous request may have succeeded although its answer was lost; the repeated one
		// was then refused.
		if there, e := b.list(ctx, ports, url.Values{"device_id": {r.ID}, "network_id": {n.ID}}); e == nil &&
			len(there) > 0 {
			return nil
		}
		return err
	}, func() (bool, error) { return false, nil })
}

// makePorts makes the first port of each instance, all in one request, which takes Neutron half the
// time per port.
func (b *building) makePorts(ctx context.Context, group string) (map[string]thing, error) {
	var bodies []map[string]any
	for _, m := range b.made {
		bodies = append(bodies,
			map[string]any{"network_id": b.network.ID, "name": b.called(m.Name), "security_groups": []string{group}})
	}
	made, err := b.createAll(ctx, ports, bodies)
	if err != nil {
		return nil, err
	}
	at := map[string]thing{}
	for _, m := range b.made {
		p := made[b.called(m.Name)]
		if len(p.FixedIPs) == 0 {
			return nil, fmt.Errorf("the service made no port with an address for %s", m.Name)
		}
		at[m.Name] = p
	}
	return at, nil
}

// createAll makes several things of a kind in one request, and returns them by name.
func (b *building) createAll(ctx context.Context, k kind, bodies []map[string]any) (map[string]thing, error) {
	for _, body := range bodies {
		body["description"] = b.mark
	}
	var made []thing
	err := once(ctx, "make "+k.title+"s", func(ctx context.Context) error {
		var answer map[string]json.RawMessage
		_, err := b.neutron.Post(ctx, b.neutron.ServiceURL(k.many), map[string]any{k.key(): bodies}, &answer, created())
		if err != nil {
			return err
		}
		return json.Unmarshal(answer[k.key()], &made)
	}, func() (bool, error) { // all of them are made, or none
		all, err := b.list(ctx, k, url.Values{"description": {b.mark}})
		made = slices.DeleteFunc(all, func(t thing) bool {
			return !slices.ContainsFunc(bodies, func(body map[string]any) bool { return body["name"] == t.Name })
		})
		return len(made) > 0, err
	})
	by := lists.Index(made, func(t thing) string { return t.Name })
	return by, err
}

// makeServers requests the instances from Nova; they boot in the background.
func (b *building) makeServers(ctx context.Context, at map[string]thing) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, m := range b.made {
		g.Go(func() error { return b.makeServer(ctx, m.Name, at[m.Name].ID) })
	}
	return g.Wait()
}

func (b *building) makeServer(ctx context.Context, name, port string) error {
	drive := true // without it, the network would need a metadata service
	userData, err := b.keys.userData(name, b.userData[name])
	if err != nil {
		return err
	}
	o := servers.CreateOpts{Name: b.called(name), ImageRef: b.images[name].ID, FlavorRef: b.flavors[name].ID,
		AvailabilityZone: b.options.of(name).Zone,
		Networks:         []servers.Network{{Port: port}}, ConfigDrive: &drive, UserData: userData,
		Metadata: map[string]string{"trivet": b.mark}}
	return once(ctx, "make the instance "+o.Name, func(ctx context.Context) error {
		with := keypairs.CreateOptsExt{CreateOptsBuilder: o, KeyName: b.options.of(name).KeyPair}
		_, err := servers.Create(ctx, b.nova, with, nil).Extract()
		return err
	}, func() (bool, error) {
		there, err := b.servers(ctx, b.Key)
		return slices.ContainsFunc(there, func(s servers.Server) bool { return s.Name == o.Name }), err
	})
}

// servers lists the instances with the mark of a key; "": those with any mark.
func (a *account) servers(ctx context.Context, key string) ([]servers.Server, error) {
	if a.nova == nil {
		return nil, nil
	}
	pages, err := servers.List(a.nova, servers.ListOpts{Name: "^trivet-"}).AllPages(ctx)
	if err != nil {
		return nil, explained("list instances", err)
	}
	all, err := servers.ExtractServers(pages)
	return slices.DeleteFunc(all, func(s servers.Server) bool {
		al, ok := ofMark(s.Metadata["trivet"])
		return !ok || key != "" && al.Key != key
	}), err
}

// reach gives the instances addresses at which this machine reaches them.
func (b *building) reach(ctx context.Context, l *site.List, at map[string]thing) error {
	if b.external != nil {
		b.say(words.Plural(len(b.made), "floating IP"))
	}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, m := range b.made {
		g.Go(func() error {
			inner, address := at[m.Name].FixedIPs[0].Address, ""
			if address = inner; b.external != nil {
				ip, err := b.make(ctx, floatingIPs, "",
					map[string]any{"floating_network_id": b.external.ID, "port_id": at[m.Name].ID})
				if err != nil {
					return err
				}
				address = ip.FloatingAddress
			}
			to, err := netip.ParseAddr(inner)
			if err != nil {
				return fmt.Errorf("the address that %s was given, %q: %w", m.Name, inner, err)
			}
			mu.Lock()
			defer mu.Unlock()
			m.Host, m.Address, m.User = address, to, cmp.Or(b.options.User, userOf(b.images[m.Name]))
			m.Key, m.HostKey = b.keys.file, b.keys.hostKey(m.Name)
			m.Cores = cmp.Or(m.Cores, float64(b.flavors[m.Name].VCPUs))
			l.Provided.Made[m.Name] = b.describe(m.Name)
			return nil
		})
	}
	return g.Wait()
}

// describe says what an instance was made of: by name, as the cloud's users know it, and by ID and
// size, as the meaning of names may change.
func (b *building) describe(name string) map[string]string {
	image, flavor := b.images[name], b.flavors[name]
	return map[string]string{"image": image.Name, "image ID": image.ID, "flavor": flavor.Name,
		"flavor has": fmt.Sprintf("%s, %d MB of memory, %d GB of disk", words.Plural(flavor.VCPUs, "processor"),
			flavor.RAM, flavor.Disk)}
}

// placed records the availability zone that Nova has chosen for an instance.
func (b *building) placed(l *site.List, s servers.Server) {
	if name, ok := strings.CutPrefix(s.Name, b.called("")); ok && l.Provided.Made[name] != nil &&
		s.AvailabilityZone != "" {
		l.Provided.Made[name]["zone"] = s.AvailabilityZone
	}
}

// booted waits until Nova reports that all instances run.
func (b *building) booted(ctx context.Context, l *site.List) error {
	wait := patience.Instance.Begin()
	for {
		there, err := b.servers(ctx, b.Key)
		if err != nil {
			return err
		}
		active := 0
		for _, s := range there {
			switch s.Status {
			case "ACTIVE":
				active++
				b.placed(l, s)
			case "ERROR":
				why := cmp.Or(s.Fault.Message, "it does not say why")
				return fmt.Errorf("the instance %s did not come up: %s: openstack server show %s", s.Name,
					site.Short(why), s.ID)
			}
		}
		if b.say(fmt.Sprintf("%d of %s run", active,
			words.Plural(len(b.made), "instance"))); active == len(b.made) {
			return nil
		}
		if wait.Over() {
			return fmt.Errorf("%d of %s: %w", active, words.Plural(len(b.made), "instance"), wait.Err())
		}
		if err := sleep(ctx, 2*time.Second); err != nil {
			return err
		}
	}
}

// entered waits until we can log in to all instances.
func (b *building) entered(ctx context.Context, l *site.List) error {
	b.say("waiting for SSH at " + words.Plural(len(l.Machines), "instance"))
	wait := patience.Instance.Begin()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, m := range l.Machines {
		g.Go(func() error {
			for {
				login, err := site.Dial(ctx, m, b.user)
				if err == nil {
					login.Close()
					return nil
				}
				var not *site.Unreachable
				if ctx.Err() != nil || !errors.As(err, &not) || wait.Over() {
					name := cmp.Or(b.options.Instances[m.Name].Server, b.called(m.Name))
					return fmt.Errorf("the instance %s runs, but does not let us in: %w\n  what it says:  openstack console log show %s", name, err, name)
				}
				if err := sleep(ctx, time.Second); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}
