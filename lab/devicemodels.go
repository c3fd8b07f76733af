package lab

import (
	"context"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"trivet.dev/trivet/measure/counters"
	"trivet.dev/trivet/topology"
)

// ModelledNode is a node with the model of a slow device, and the counters of that model.
type ModelledNode struct {
	Node   string          `json:"node"`
	Model  topology.Model  `json:"model"`
	Device counters.Served `json:"device" doc:"Of a model that only bounds links nothing is counted"`
}

// registerModels adds the nodes with models of slow devices to the API.
func registerModels(api huma.API, d *daemon) {
	huma.Get(api, "/v1/models", func(context.Context, *struct{}) (*body[[]ModelledNode], error) {
		m, err := d.models()
		return &body[[]ModelledNode]{m}, problem(err)
	}, summary("Nodes that stand for slow devices, the models of those, and what these have served and dropped since the daemon started (up, resume) or the model was added"))
}

func (d *daemon) models() ([]ModelledNode, error) {
	d.changing.Lock()
	defer d.changing.Unlock()
	if err := d.isUp(); err != nil {
		return nil, err
	}
	return d.target().Models()
}

// Models returns the nodes with models of slow devices, and the counters of the models.
func (c *Client) Models(ctx context.Context) ([]ModelledNode, error) {
	return call[[]ModelledNode](ctx, c, "GET", "/v1/models", nil)
}

// modelCollector exports the same to Prometheus.
type modelCollector struct{ d *daemon }

func describeModel(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("trivet_model_"+name, help, []string{"node", "model"}, nil)
}

var (
	descModelServed  = describeModel("served_packets_total", "Packets that the model of a slow device has served.")
	descModelDropped = describeModel("dropped_packets_total", "Packets that found the queue of such a model full.")
	descModelWaiting = describeModel("waiting_packets", "Packets that wait for such a model, or are served.")
	descModelBusy    = describeModel("busy_seconds_total", "How long such a model has served packets.")
)

// Describe sends the descriptions of all metrics.
func (modelCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descModelServed, descModelDropped, descModelWaiting, descModelBusy} {
		to <- d
	}
}

// Collect sends the current values; none if the lab is not up.
func (c modelCollector) Collect(to chan<- prometheus.Metric) {
	nodes, err := c.d.models()
	if err != nil {
		return
	}
	for _, n := range nodes {
		if !n.Model.Serves() {
			continue
		}
		put := func(desc *prometheus.Desc, kind prometheus.ValueType, v float64) {
			to <- prometheus.MustNewConstMetric(desc, kind, v, n.Node, n.Model.Name)
		}
		put(descModelServed, prometheus.CounterValue, float64(n.Device.Served.Packets))
		put(descModelDropped, prometheus.CounterValue, float64(n.Device.Overflowed.Packets))
		put(descModelWaiting, prometheus.GaugeValue, float64(n.Device.Waiting.Packets))
		put(descModelBusy, prometheus.CounterValue, n.Device.Busy.Seconds())
	}
}
