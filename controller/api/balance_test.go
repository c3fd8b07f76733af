package api

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/topology"
)

// Proves that a path is listed, installed and taken back, between routers, and that what is wrong
// with one is said and installs nothing: more paths than are looked for at once, a list of names,
// however long, of which one comes twice, which is looked at before them, or is that of no router.
func TestPathsOverTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, "ring,4", topology.Router, "")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		const to = "h3"
		list := func() (out []string) {
			p, err := b.PossiblePaths(ctx, "r1", to, 16)
			b.must(err)
			for _, x := range p.Paths {
				out = append(out, strings.Join(x.Routers, " "))
			}
			slices.Sort(out)
			return out
		}
		b.wait("paths", func() bool { return slices.Equal(list(), []string{"r1 r2 r3", "r1 r4 r3"}) })
		if _, err := b.PossiblePaths(ctx, "r1", to, 17); err == nil {
			t.Error("17 paths are looked for")
		}
		for _, c := range []struct {
			routers []string
			want    string
		}{
			{append(slices.Repeat([]string{"r1"}, 100_000), "nobody"), "passes r1 twice"},
			{[]string{"r1", "nobody", "r3"}, "nobody is no routing node"},
			{[]string{"r1", "r3"}, "no link leads from r1 to r3"},
		} {
			if _, err := b.InstallPath(ctx, PathRequest{To: to, Routers: c.routers}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%d routers: %v, want %q", len(c.routers), err, c.want)
			}
		}
		p, err := b.InstallPath(ctx, PathRequest{To: to, Routers: []string{"r1", "r4", "r3"}})
		b.must(err)
		got, err := b.Balance(ctx)
		b.must(err)
		if len(got.Moved) != 1 || !slices.Equal(got.Moved[0].Routers, p.Routers) {
			t.Errorf("installed %v, and these have moved: %+v", p, got.Moved)
		}
		b.must(b.TakePathBack(ctx, to))
	})
}
