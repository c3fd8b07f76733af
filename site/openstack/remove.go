package openstack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"golang.org/x/sync/errgroup"

	"trivet.dev/trivet/internal/asuser"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/site"
)

// removed are the kinds of things removed after the instances, in this order. Router interfaces are
// removed with their routers, subnets with their networks.
var removed = []kind{floatingIPs, routers, ports, networks, securityGroups}

// Remove removes everything with the mark of a key. If something cannot be removed, it carries on,
// and names that in the error.
func (a *account) Remove(ctx context.Context, key string, say func(string)) (int, error) {
	n, err := a.removeServers(ctx, key, say)
	wrong := []error{err}
	for _, k := range removed {
		all, err := a.marked(ctx, k, key)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		if len(all) == 0 {
			continue
		}
		say("removing " + words.Plural(len(all), k.title))
		var g errgroup.Group
		g.SetLimit(atOnce)
		failed := make([]error, len(all))
		for i, t := range all {
			g.Go(func() error {
				switch k {
				case routers:
					failed[i] = a.emptyRouter(ctx, t.ID)
				case ports:
					failed[i] = a.detach(ctx, t)
				}
				failed[i] = errors.Join(failed[i], a.remove(ctx, k, t.ID))
				return nil
			})
		}
		_ = g.Wait()
		n += len(all)
		wrong = append(wrong, failed...)
	}
	err = errors.Join(wrong...)
	if err == nil {
		err = asuser.Do(func() error {
			if err := os.Remove(keyFile(a.user, key)); !errors.Is(err, os.ErrNotExist) {
				return err
			}
			return nil
		})
	}
	return n, err
}

// removeServers deletes instances and waits until they are gone: before that, what they use cannot
// be deleted.
func (a *account) removeServers(ctx context.Context, key string, say func(string)) (int, error) {
	n, wait := 0, patience.CloudRemoves.Begin()
	for asked := map[string]bool{}; ; {
		there, err := a.servers(ctx, key)
		if err != nil || len(there) == 0 {
			return n, err
		}
		if wait.Over() {
			return n, fmt.Errorf("%s are still there, such as %s (%s): %w", words.Plural(len(there), "instance"),
				there[0].Name, there[0].Status, wait.Err())
		}
		say("removing " + words.Plural(len(there), "instance"))
		for _, s := range there {
			if asked[s.ID] {
				continue
			}
			err := servers.Delete(ctx, a.nova, s.ID).ExtractErr()
			switch {
			case err == nil, gophercloud.ResponseCodeIs(err, http.StatusNotFound):
				asked[s.ID] = true
				n++
			case !gophercloud.ResponseCodeIs(err, http.StatusConflict): // it is changing: try again
				return n, explained("delete the instance "+s.Name, err)
			}
		}
		if err := sleep(ctx, time.Second); err != nil {
			return n, err
		}
	}
}

// detach detaches a port from an instance that stays, and waits until that is done.
func (a *account) detach(ctx context.Context, t thing) error {
	if !strings.HasPrefix(t.DeviceOwner, "compute:") {
		return nil
	}
	_, err := a.nova.Delete(ctx, a.nova.ServiceURL("servers", t.Device, "os-interface", t.ID),
		&gophercloud.RequestOpts{OkCodes: []int{http.StatusAccepted}})
	if err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		return explained("detach the port "+t.Name, err)
	}
	for wait := patience.CloudRemoves.Begin(); ; {
		there, err := a.list(ctx, ports, url.Values{"id": {t.ID}, "device_id": {t.Device}})
		if err != nil || len(there) == 0 {
			return err
		}
		if wait.Over() {
			return fmt.Errorf("the port %s is still attached to the instance %s: %w", t.Name, t.Device, wait.Err())
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// Allocations lists what the project has of any lab.
func (a *account) Allocations(ctx context.Context) ([]site.Allocation, error) {
	by := map[string]*site.Allocation{}
	count := func(text, kind string) {
		al, ok := ofMark(text)
		if !ok {
			return
		}
		if by[al.Key] == nil {
			al.Holds = map[string]int{}
			by[al.Key] = &al
		}
		by[al.Key].Holds[kind]++
	}
	there, err := a.servers(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, s := range there {
		count(s.Metadata["trivet"], "instance")
	}
	for _, k := range removed {
		all, err := a.marked(ctx, k, "")
		if err != nil {
			return nil, err
		}
		for _, t := range all {
			count(t.Description, k.title)
		}
	}
	out := lists.Map(slices.Sorted(maps.Keys(by)), func(key string) site.Allocation { return *by[key] })
	slices.SortStableFunc(out, func(a, b site.Allocation) int { return strings.Compare(a.Since, b.Since) })
	return out, nil
}
