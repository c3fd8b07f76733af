package lab

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/measure/counters"
)

// looked is a look at one link, between a and b, at a time.
func looked(at time.Duration, wire datapath.Wire, there, back *counters.Traffic) TrafficLook {
	a, b := Place{"a", "a-eth0"}, Place{"b", "b-eth0"}
	return TrafficLook{Time: time.Unix(1, 0).Add(at), Links: []LinkTraffic{{Link: "a-b", Wire: wire, Directions: [2]LinkDirection{
		{From: a, To: b, Sent: there, Bandwidth: 1e6}, {From: b, To: a, Sent: back}}}}}
}

// TestTrafficSince proves what the rates and shares are that two looks come to, in each direction
// by itself; that there are none where they would not be true: of a link that was not there before
// or is made of something else, where nobody counts or something has begun to count anew, where
// nobody has looked before, or just then; that a link which has gone does no harm; and that the
// looks stay what they are, as others may be given the same.
func TestTrafficSince(t *testing.T) {
	sent := func(packets, bytes uint64) *counters.Traffic {
		return &counters.Traffic{Packets: packets, Bytes: bytes}
	}
	const second = time.Second
	before := looked(second, datapath.Veth, sent(10, 1000), sent(1<<63, 1<<63))
	for name, c := range map[string]struct {
		before, now TrafficLook
		want        [2]float64 // bit/s; -1: none
	}{
		"both ways":            {before, looked(3*second, datapath.Veth, sent(30, 101_000), sent(1<<63, 1<<63)), [2]float64{400_000, 0}},
		"no look before":       {TrafficLook{}, before, [2]float64{-1, -1}},
		"the same look":        {before, before, [2]float64{-1, -1}},
		"a link that has come": {TrafficLook{Time: before.Time}, looked(3*second, datapath.Veth, sent(30, 3000), sent(1, 1)), [2]float64{-1, -1}},
		"one that has gone":    {before, TrafficLook{Time: before.Time.Add(second)}, [2]float64{-1, -1}},
		"made of another":      {before, looked(3*second, datapath.Line, sent(30, 3000), sent(1<<63, 1<<63)), [2]float64{-1, -1}},
		"counted anew":         {before, looked(3*second, datapath.Veth, sent(30, 3000), sent(5, 500)), [2]float64{8000, -1}},
		"fewer packets":        {before, looked(3*second, datapath.Veth, sent(9, 3000), sent(1<<63+2, 1<<63+250)), [2]float64{-1, 1000}},
		"nobody counts":        {before, looked(3*second, datapath.Veth, nil, sent(1<<63, 1<<63+250)), [2]float64{-1, 1000}},
		"nobody has counted":   {looked(second, datapath.Veth, nil, sent(0, 0)), looked(3*second, datapath.Veth, sent(30, 3000), sent(0, 0)), [2]float64{-1, 0}},
	} {
		was, _ := json.Marshal([]TrafficLook{c.before, c.now})
		out := c.now.since(c.before)
		if is, _ := json.Marshal([]TrafficLook{c.before, c.now}); string(is) != string(was) {
			t.Errorf("%s: the looks have become %s", name, is)
		}
		for _, l := range out.Links {
			for i, d := range l.Directions {
				rate := -1.0
				if d.Rate != nil {
					rate = *d.Rate
				}
				if rate != c.want[i] || (d.PacketRate == nil) != (rate < 0) || (d.Share == nil) != (rate < 0 || i == 1) {
					t.Errorf("%s: direction %d: %+v, rate %v", name, i, d, rate)
				}
			}
		}
	}
	out := looked(3*second, datapath.Veth, sent(30, 101_000), sent(1<<63, 1<<63)).since(before)
	if d := out.Links[0].Directions[0]; out.Period != 2 || *d.PacketRate != 10 || *d.Share != 0.4 {
		t.Errorf("over %v s: %v packets/s, a share of %v", out.Period, *d.PacketRate, *d.Share)
	}
}

func (e *elsewhere) Traffic(ctx context.Context) ([][2]LinkDirection, error) {
	if err := e.do("look"); err != nil {
		return nil, err
	}
	problem := ""
	if e.hangs {
		<-ctx.Done()
		problem = ctx.Err().Error()
	}
	out := make([][2]LinkDirection, len(e.now.Links))
	for i, l := range e.now.Links {
		for end := range l.Ends {
			out[i][end] = LinkDirection{From: PlaceOf(l.Ends[end]), To: PlaceOf(l.Ends[1-end]), Sent: &counters.Traffic{}, Problem: problem}
		}
	}
	return out, nil
}

// TestTrafficShared proves that a look that takes longer than a look may be old is shared by who
// comes when it ends.
func TestTrafficShared(t *testing.T) {
	d, e := daemonElsewhere(t, "minimal")
	d.changing.Lock()
	d.up()
	const age = time.Second
	var ended time.Time
	e.while = map[string]func(){"look": func() {
		if is := time.Since(ended); is < age {
			t.Errorf("one looks again %v after another", is)
		}
		time.Sleep(age + age/10)
	}}
	for range 2 {
		if _, err := d.traffic(t.Context(), age); err != nil {
			t.Fatal(err)
		}
		ended = time.Now()
	}
}

// TestTrafficHangs proves that a look ends when the time for an answer is over, with what hangs as
// a problem; that it ends at once when who asked is gone, which is no look for others, and when the
// lab goes down.
func TestTrafficHangs(t *testing.T) {
	d, e := daemonElsewhere(t, "minimal")
	d.changing.Lock()
	d.up()
	e.hangs = true
	undo := patience.Query.Be(50 * time.Millisecond)
	look, err := d.traffic(t.Context(), 0)
	undo()
	if err != nil || look.Links[0].Directions[0].Problem == "" {
		t.Errorf("%+v, %v", look, err)
	}
	defer patience.Query.Be(time.Hour)()
	gone, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer leave()
	if _, err := d.traffic(gone, 0); !errors.Is(err, gone.Err()) {
		t.Errorf("who asked is gone: %v", err)
	}
	if !d.looked.Time.Equal(look.Time) {
		t.Errorf("others are given the look at %v of one who is gone", d.looked.Time)
	}
	time.AfterFunc(50*time.Millisecond, d.cancel)
	if _, err := d.traffic(t.Context(), 0); !errors.Is(err, errGoing) {
		t.Errorf("the lab goes down: %v", err)
	}
}

// TestTrafficDown proves that who follows the traffic, or waits to look a second time, hears that
// the lab goes down as soon as it begins to, not when it is down.
func TestTrafficDown(t *testing.T) {
	d, _ := daemonElsewhere(t, "minimal")
	d.changing.Lock()
	d.up()
	server := httptest.NewServer(d.handler())
	defer server.Close()
	defer server.CloseClientConnections()
	said := make(chan string, 2)
	read := func(path string) {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			said <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		said <- string(text)
	}
	go read(followTrafficPath + "?every=1h")
	go read("/v1/traffic?over=1h")
	time.Sleep(100 * time.Millisecond) // by then both have looked once; if not, they hear it all the same
	d.changing.Lock()                  // as down does until all is gone
	defer d.changing.Unlock()
	d.cancel()
	for range 2 {
		select {
		case text := <-said:
			if !strings.Contains(text, errGoing.Error()) {
				t.Errorf("it ends with %q", text)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("nothing is said while the lab goes down")
		}
	}
}

// TestTrafficLooks proves that nobody looks at a lab's links unless somebody asks; that those who
// look as often as others share the looks; that rates come with the second line; that the last line
// says why a stream ends; and that a time which is none, or too short, is refused.
func TestTrafficLooks(t *testing.T) {
	d, e := daemonElsewhere(t, "minimal")
	d.changing.Lock()
	d.up()
	looks := func() (n int) {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, what := range e.did {
			if what == "look" {
				n++
			}
		}
		return n
	}
	server := httptest.NewServer(d.handler())
	defer server.Close()
	if n := looks(); n != 0 {
		t.Errorf("%d looks before anybody has asked", n)
	}
	const watching, lines = 5, 3
	said := make(chan TrafficLook, watching*100)
	for range watching {
		resp, err := http.Get(server.URL + followTrafficPath + "?every=200ms")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		go func() {
			var l TrafficLook
			for n, text := 0, json.NewDecoder(resp.Body); text.Decode(&l) == nil; n++ {
				if l.Error == "" && (l.Period > 0) != (n > 0) {
					t.Errorf("line %d has a period of %v s", n, l.Period)
				}
				said <- l
				l = TrafficLook{}
			}
		}()
	}
	for range watching * lines {
		<-said
	}
	if n := looks(); n > watching+2*lines { // each may have begun at another time
		t.Errorf("%d looks for %d who look %d times", n, watching, lines)
	}
	e.mu.Lock()
	e.fail["look"] = errors.New("nothing is to be seen")
	e.mu.Unlock()
	for ends := 0; ends < watching; {
		if l := <-said; l.Error != "" {
			if ends++; !strings.Contains(l.Error, "nothing is to be seen") {
				t.Errorf("it ends with %q", l.Error)
			}
		}
	}
	for _, path := range []string{followTrafficPath + "?every=soon", followTrafficPath + "?every=1ms", "/v1/traffic?over=-5s", "/v1/traffic?over=2h"} {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}
