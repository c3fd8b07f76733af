package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/proto"

	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/internal/patience"
)

// What only the master of a switch knows, the daemon asks of all members: package controller/api
// says what that is, and merges their answers.

// joint asks all members and merges their answers.
func (d *daemon) joint(c *cluster) *api.Joint {
	return &api.Joint{
		Members: func() (out []api.JointMember) {
			for _, m := range c.list() {
				out = append(out, api.JointMember{Name: m.called, RoundTripper: m.transport(), Status: m.status})
			}
			return out
		},
		Switches: func() (out []string) {
			for _, n := range d.state().Topology.Nodes {
				if controlled(n) {
					out = append(out, n.Name)
				}
			}
			return out
		},
		Settle: func(ctx context.Context) { d.settleChange(ctx, "a path is taken back") },
	}
}

// memberMetrics gathers the metrics of the members of a lab's cluster, with the label member.
// Members serve them on Unix sockets, which Prometheus does not scrape; whoever scrapes the daemon
// gets them all.
type memberMetrics struct{ d *daemon }

var _ prometheus.Gatherer = memberMetrics{}

// labelMember is the label that names a metric's member. If the metric has such a label already,
// that one gets the prefix "exported_", as Prometheus does with a target's labels.
const labelMember = "member"

// Gather asks the members, with a timeout; it returns an error for each that does not answer.
func (g memberMetrics) Gather() ([]*dto.MetricFamily, error) {
	c := g.d.cluster.Load()
	if c == nil {
		return nil, nil
	}
	type answer struct {
		member   string
		families []*dto.MetricFamily
		err      error
	}
	all := map[string]*dto.MetricFamily{}
	up := &dto.MetricFamily{Name: proto.String("trivet_cluster_member_up"),
		Help: proto.String("1: the member of the cluster has said what it measures."),
		Type: dto.MetricType_GAUGE.Enum()}
	for _, a := range ofMembers(c, func(m *member) answer {
		families, err := m.metrics(g.d.ctx)
		return answer{m.called, families, err}
	}) {
		one := dto.Metric{Label: []*dto.LabelPair{{Name: proto.String(labelMember), Value: &a.member}},
			Gauge: &dto.Gauge{Value: proto.Float64(1)}}
		if a.err != nil {
			one.Gauge.Value = proto.Float64(0)
		}
		up.Metric = append(up.Metric, &one)
		for _, f := range a.families {
			for _, x := range f.Metric {
				labelled(x, a.member)
			}
			if known := all[f.GetName()]; known == nil {
				all[f.GetName()] = f
			} else if known.GetType() == f.GetType() { // of two versions one may have changed it
				known.Metric = append(known.Metric, f.Metric...)
			}
		}
	}
	all[up.GetName()] = up
	return slices.SortedFunc(maps.Values(all),
		func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) }), nil
}

// labelled adds the label.
func labelled(x *dto.Metric, member string) {
	for _, l := range x.Label {
		if l.GetName() == labelMember {
			l.Name = proto.String("exported_" + labelMember)
		}
	}
	x.Label = append(x.Label, &dto.LabelPair{Name: proto.String(labelMember), Value: &member})
	slices.SortFunc(x.Label, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
}

// metrics asks the member for its metrics.
func (m *member) metrics(ctx context.Context) (out []*dto.MetricFamily, err error) {
	if _, err := m.status(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := patience.MemberAnswer.Context(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://member/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := m.bounded().RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("member %s: %s", m.called, resp.Status)
	}
	for d := expfmt.NewDecoder(resp.Body, expfmt.ResponseFormat(resp.Header)); ; {
		f := &dto.MetricFamily{}
		switch err := d.Decode(f); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("member %s: %w", m.called, err)
		}
		out = append(out, f)
	}
}
