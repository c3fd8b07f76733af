package openstack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/keypairs"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/limits"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/quotas"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/site"
)

// found is what the cloud has of what a list requests.
type found struct {
	images   map[string]images.Image   // by machine
	flavors  map[string]flavors.Flavor // by machine
	userData map[string][]byte         // by machine: its own
	network  *thing                    // the existing one; nil: one is to be made
	external *thing                    // network of floating IPs; nil: there are none
}

// Check reports everything that is wrong with what a list requests.
func (a *account) Check(ctx context.Context, l *site.List) error {
	if len(l.Machines) == 0 {
		return nil
	}
	if a.without != nil {
		return a.without
	}
	f, err := a.find(ctx, l)
	if err != nil {
		return err
	}
	return a.room(ctx, f)
}

// find looks up what a list names.
func (a *account) find(ctx context.Context, l *site.List) (f found, err error) {
	var wrong []error
	f.images, f.flavors, f.userData = map[string]images.Image{}, map[string]flavors.Flavor{}, map[string][]byte{}
	_, missing := a.existing(ctx, l)
	made := a.options.made(l)
	if wrong = append(wrong, missing); len(made) == 0 {
		return f, missing
	}
	pages, err := images.List(a.glance, images.ListOpts{Status: images.ImageStatusActive}).AllPages(ctx)
	if err != nil {
		return f, explained("list images", err)
	}
	allImages, err := images.ExtractImages(pages)
	if err != nil {
		return f, err
	}
	if pages, err = flavors.ListDetail(a.nova, flavors.ListOpts{}).AllPages(ctx); err != nil {
		return f, explained("list flavors", err)
	}
	allFlavors, err := flavors.ExtractFlavors(pages)
	if err != nil {
		return f, err
	}
	wrong = append(wrong, a.checkKeyPairs(ctx, made))
	for _, m := range made {
		of := a.options.of(m.Name)
		own, err := ownUserData(of.UserData)
		f.userData[m.Name], wrong = own, append(wrong, err)
		image, err1 := choose("image", of.Image, allImages,
			func(i images.Image) (string, string) { return i.ID, i.Name })
		flavor, err2 := choose("flavor", of.Flavor, allFlavors,
			func(f flavors.Flavor) (string, string) { return f.ID, f.Name })
		switch {
		case err1 != nil || err2 != nil:
			wrong = append(wrong, err1, err2)
		case flavor.RAM < image.MinRAMMegabytes || flavor.Disk > 0 && flavor.Disk < image.MinDiskGigabytes:
			wrong = append(wrong,
				fmt.Errorf("the image %s needs %d MB of memory and %d GB of disk; the flavor %s has %d MB and %d GB",
					image.Name, image.MinRAMMegabytes, image.MinDiskGigabytes, flavor.Name, flavor.RAM, flavor.Disk))
		}
		f.images[m.Name], f.flavors[m.Name] = image, flavor
	}
	all, err := a.list(ctx, networks, url.Values{})
	if err != nil {
		return f, err
	}
	idAndName := func(t thing) (string, string) { return t.ID, t.Name }
	external := slices.DeleteFunc(slices.Clone(all), func(t thing) bool { return !t.External })
	if a.options.External != none {
		n, err := choose("external network", a.options.External, external, idAndName)
		if f.external = &n; err != nil {
			wrong = append(wrong, err)
		}
	}
	if a.options.Network != "" {
		n, err := choose("network", a.options.Network, all, idAndName)
		if f.network = &n; err != nil {
			wrong = append(wrong, err)
		} else if len(n.Subnets) == 0 {
			wrong = append(wrong, fmt.Errorf("the network %s has no subnet: an instance gets no address there", n.Name))
		}
	}
	return f, errors.Join(unique(wrong)...)
}

// existing returns the IDs of the servers that a list names, by machine.
func (a *account) existing(ctx context.Context, l *site.List) (map[string]string, error) {
	ids := map[string]string{}
	if len(a.options.made(l)) == len(l.Machines) {
		return ids, nil
	}
	pages, err := servers.List(a.nova, servers.ListOpts{}).AllPages(ctx)
	if err != nil {
		return nil, explained("list instances", err)
	}
	all, err := servers.ExtractServers(pages)
	if err != nil {
		return nil, err
	}
	var wrong []error
	of := map[string]string{} // machines, by server
	for _, m := range l.Machines {
		name := a.options.Instances[m.Name].Server
		if name == "" {
			continue
		}
		s, err := choose("server", name, all, func(s servers.Server) (string, string) { return s.ID, s.Name })
		switch {
		case err != nil:
			wrong = append(wrong, err)
		case s.Status != "ACTIVE":
			wrong = append(wrong, fmt.Errorf("the server %s is %s: openstack server start %s", s.Name, s.Status, s.ID))
		case of[s.ID] != "":
			wrong = append(wrong, fmt.Errorf("%s and %s are the same server: %s", of[s.ID], m.Name, s.Name))
		}
		ids[m.Name], of[s.ID] = s.ID, m.Name
	}
	return ids, errors.Join(wrong...)
}

// checkKeyPairs reports key pairs that are named and not there.
func (a *account) checkKeyPairs(ctx context.Context, made []*site.Machine) error {
	var wrong []error
	seen := map[string]bool{"": true}
	for _, m := range made {
		name := a.options.of(m.Name).KeyPair
		if seen[name] {
			continue
		}
		seen[name] = true
		err := keypairs.Get(ctx, a.nova, url.PathEscape(name), nil).Err
		if gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			wrong = append(wrong, fmt.Errorf("there is no key pair %s: openstack keypair list", name))
		} else {
			wrong = append(wrong, explained("ask for the key pair "+name, err))
		}
	}
	return errors.Join(wrong...)
}

// unique removes repeated errors: many instances may request the same.
func unique(errs []error) (out []error) {
	seen := map[string]bool{}
	for _, err := range errs {
		if err != nil && !seen[err.Error()] {
			seen[err.Error()], out = true, append(out, err)
		}
	}
	return out
}

// choose returns the one with a name or ID; if name is empty, the only one.
func choose[T any](what, name string, all []T, of func(T) (id, name string)) (chosen T, err error) {
	var names []string
	var fit []T
	for _, x := range all {
		id, called := of(x)
		if id == name {
			return x, nil
		}
		if name == "" || called == name {
			fit = append(fit, x)
		}
		names = append(names, called)
	}
	slices.Sort(names)
	if len(names) > 20 {
		names = append(names[:20], "…")
	}
	option := strings.TrimSuffix(what, " network") // external
	switch {
	case len(fit) == 1:
		return fit[0], nil
	case len(all) == 0:
		return chosen, fmt.Errorf("the cloud has no %s that this project may use", what)
	case name == "":
		return chosen, fmt.Errorf("which %s: write  openstack: {%s: NAME},  one of %s", what, option,
			strings.Join(names, ", "))
	case len(fit) == 0:
		return chosen, fmt.Errorf("there is no %s %s; there are %s", what, name, strings.Join(names, ", "))
	}
	return chosen, fmt.Errorf("%s have the name %s: write the ID of one", words.Plural(len(fit), what), name)
}

// room reports what exceeds the project's quotas.
func (a *account) room(ctx context.Context, f found) error {
	if len(f.flavors) == 0 {
		return nil
	}
	var lacks shortage
	cores, memory := 0, 0
	for _, x := range f.flavors {
		cores, memory = cores+x.VCPUs, memory+x.RAM
	}
	said, err := limits.Get(ctx, a.nova, nil).Extract()
	if err != nil {
		return explained("ask for the quotas of Nova", err)
	}
	n, c := len(f.flavors), said.Absolute
	lacks.need("instances", n, c.TotalInstancesUsed, c.MaxTotalInstances)
	lacks.need("processors", cores, c.TotalCoresUsed, c.MaxTotalCores)
	lacks.need("memory (MB)", memory, c.TotalRAMUsed, c.MaxTotalRAMSize)
	q, err := a.quotas(ctx)
	if err != nil {
		return err
	}
	if q != nil {
		lacks.of("security groups", 1, q.SecurityGroup)
		lacks.of("ports", n+1, q.Port)
		if f.external != nil {
			lacks.of("floating IPs", n, q.FloatingIP)
		}
		if f.network == nil {
			lacks.of("networks", 1, q.Network)
			lacks.of("subnets", 1, q.Subnet)
			lacks.of("routers", 1, q.Router)
		}
	}
	return lacks.err("choose a smaller flavor or fewer instances")
}

// roomForPorts reports whether the quotas allow n more ports, and networks for links and routers
// for nodes.
func (a *account) roomForPorts(ctx context.Context, n, links, routers int) error {
	q, err := a.quotas(ctx)
	if err != nil || q == nil {
		return err
	}
	var lacks shortage
	lacks.of("ports", n, q.Port)
	lacks.of("networks", links, q.Network)
	lacks.of("subnets", links, q.Subnet)
	lacks.of("routers", routers, q.Router)
	return lacks.err("leave links out")
}

// quotas returns the project's quotas in Neutron; nil: the user may not read them.
func (a *account) quotas(ctx context.Context) (*quotas.QuotaDetailSet, error) {
	q, err := quotas.GetDetail(ctx, a.neutron, a.project).Extract()
	if gophercloud.ResponseCodeIs(err, http.StatusNotFound) || gophercloud.ResponseCodeIs(err, http.StatusForbidden) {
		return nil, nil
	}
	return q, explained("ask for the quotas of Neutron", err)
}

// shortage lists what exceeds quotas.
type shortage []error

// need records a quota that is too small. A negative limit means unlimited.
func (s *shortage) need(what string, want, used, limit int) {
	if limit >= 0 && want > limit-used {
		*s = append(*s,
			fmt.Errorf("the quota of %s: %d are wanted, and %d of %d are left", what, want, max(0, limit-used), limit))
	}
}

func (s *shortage) of(what string, want int, q quotas.QuotaDetail) {
	s.need(what, want, q.Used+q.Reserved, q.Limit)
}

// err returns the error, with or as one thing that the user can do about it.
func (s *shortage) err(or string) error {
	if len(*s) == 0 {
		return nil
	}
	return fmt.Errorf("%w\n  make room (trivet ls --on openstack shows what labs take), %s, or have the quota raised",
		errors.Join(*s...), or)
}
