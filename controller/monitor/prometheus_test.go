package monitor

import (
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"trivet.dev/trivet/controller/database"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

// Proves that Prometheus gets what is measured, by names and units that its own check finds
// no fault with, and that counters that the switch does not keep are left out.
func TestPrometheus(t *testing.T) {
	db, err := database.Open(filepath.Join(t.TempDir(), "db"), database.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, c := begin(t, Options{Period: 50 * time.Millisecond, SlowPeriod: 50 * time.Millisecond, Store: db})
	t.Cleanup(func() { _ = db.Close() })
	f := meet(t, c, 0xab)
	f.set(func() {
		f.ports = openflow.PortStatsList{{Port: 1, RxBytes: 1000, TxBytes: NoCounter}, {Port: 2}}
		f.flows = make(openflow.FlowStatsList, 1)
	})
	until.True(t, "readings", func() bool {
		flows, _ := a.Flows(0xab)
		p, _ := a.Port(0xab, 1)
		return flows.Complete && len(a.Tables(0xab)) > 0 && p.Interval > 0
	})
	w := httptest.NewRecorder()
	all := prometheus.NewRegistry()
	all.MustRegister(a.Collector())
	promhttp.HandlerFor(all, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text := w.Body.String()
	for _, want := range []string{
		"trivet_switches 1\n",
		`trivet_port_bytes_total{direction="rx",port="1",switch="00000000000000ab"} 1000` + "\n",
		`trivet_port_info{address="02:01:00:00:00:00",name="one",port="1",switch="00000000000000ab"} 1` + "\n",
		`trivet_port_up{port="2",switch="00000000000000ab"} 0` + "\n",
		`trivet_port_capacity_bytes{port="1",switch="00000000000000ab"} 1.25e+06` + "\n",
		`trivet_port_utilization_ratio{direction="rx",port="1",switch="00000000000000ab"} 0` + "\n",
		`trivet_flow_entries{switch="00000000000000ab"} 1` + "\n",
		`trivet_flow_lookups_total{switch="00000000000000ab"} 15` + "\n",
		`trivet_flow_matches_total{switch="00000000000000ab"} 7` + "\n",
		`trivet_openflow_bytes_total{direction="received",switch="00000000000000ab"} `,
		`trivet_openflow_recent_bytes{switch="00000000000000ab"} `,
		`trivet_packet_in_total{protocol="arp"} 0` + "\n",
		`trivet_monitor_requests_total{result="unanswered"} 0` + "\n",
		`trivet_database_rows_total{result="dropped"} 0` + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing: %s", want)
		}
	}
	if strings.Contains(text, `trivet_port_bytes_total{direction="tx",port="1"`) {
		t.Error("a counter that is not kept is given")
	}
	if t.Failed() {
		t.Log(text)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}
