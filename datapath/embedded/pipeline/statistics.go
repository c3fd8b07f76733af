package pipeline

import (
	"maps"
	"slices"
	"time"

	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/openflow"
)

// Multipart answers a multipart request, except for experimenters'. The error is a *Refusal.
func (s *Switch) Multipart(request openflow.MultipartBody, now time.Duration) (openflow.MultipartBody, error) {
	s.net.read(s)
	s.net.mu.RLock()
	defer s.net.mu.RUnlock()
	switch r := request.(type) {
	case openflow.FlowStatsRequest:
		return s.flowStats(r, now)
	case openflow.AggregateStatsRequest:
		return s.aggregate(openflow.FlowStatsRequest(r))
	case openflow.PortStatsRequest:
		return s.portStats(r, now)
	case openflow.QueueStatsRequest:
		return s.queueStats(r)
	case openflow.GroupStatsRequest:
		return s.groupStats(r, now)
	case openflow.MeterStatsRequest:
		return s.meterStats(r, now)
	case openflow.MeterConfigRequest:
		return s.meterConfigs(r)
	case openflow.TableFeaturesList:
		if len(r) > 0 {
			return nil, refuse(openflow.TableFeaturesFailedPermissions, "the features of tables cannot be changed")
		}
		return s.tableFeatures(), nil
	case openflow.NoBody:
		return s.describe(r)
	}
	return nil, refuse(openflow.BadRequestBadMultipart, "no answer to %v", request.MultipartType())
}

// describe answers requests without a body.
func (s *Switch) describe(r openflow.NoBody) (openflow.MultipartBody, error) {
	switch r.MultipartType() {
	case openflow.MultipartDesc:
		return openflow.Desc{
			Manufacturer: "Trivet", Hardware: "embedded", Software: version.Version, SerialNumber: "none",
			Datapath: s.config.Name,
		}, nil
	case openflow.MultipartTable:
		list := make(openflow.TableStatsList, len(s.tables))
		for id, t := range s.tables {
			if list[id].Table = uint8(id); t == nil {
				continue
			}
			lookups, misses := t.lookups.Packets(), t.misses.Packets()
			list[id] = openflow.TableStats{Table: uint8(id), Active: uint32(t.count), Lookups: lookups,
				Matched: lookups - min(misses, lookups)}
		}
		return list, nil
	case openflow.MultipartPortDesc:
		var list openflow.PortDescList
		for _, p := range s.order {
			list = append(list, p.desc)
		}
		if s.ports[openflow.PortLocal] == nil {
			list = append(list, s.local())
		}
		return list, nil
	case openflow.MultipartGroupDesc:
		var list openflow.GroupDescList
		for _, id := range slices.Sorted(maps.Keys(s.groups)) {
			list = append(list, s.groups[id].desc)
		}
		return list, nil
	case openflow.MultipartGroupFeatures:
		return groupFeatures, nil
	case openflow.MultipartMeterFeatures:
		return meterFeatures, nil
	}
	return nil, refuse(openflow.BadRequestBadMultipart, "no answer to %v", r.MultipartType())
}

// flowsFor returns the entries that a request selects.
func (s *Switch) flowsFor(r openflow.FlowStatsRequest) (list []*Flow, err error) {
	value, mask, err := matchOf(r.Match)
	if err != nil {
		return nil, err
	}
	if int(r.Table) >= len(s.tables) && r.Table != openflow.TableAll {
		return nil, refuse(openflow.BadRequestBadTableID, "there is no table %d", r.Table)
	}
	for id, t := range s.tables {
		if r.Table != openflow.TableAll && int(r.Table) != id {
			continue
		}
		for _, f := range t.list(&value, &mask) {
			if (f.Cookie^r.Cookie)&r.CookieMask == 0 && f.program.outputsTo(r.OutPort, r.OutGroup) {
				list = append(list, f)
			}
		}
	}
	return list, nil
}

func (s *Switch) flowStats(r openflow.FlowStatsRequest, now time.Duration) (openflow.MultipartBody, error) {
	flows, err := s.flowsFor(r)
	if err != nil {
		return nil, err
	}
	list := make(openflow.FlowStatsList, 0, len(flows))
	for _, f := range flows {
		list = append(list, openflow.FlowStats{
			Table: f.Table, Duration: age(f.created, now), Priority: f.Priority, IdleTimeout: f.IdleTimeout,
			HardTimeout: f.HardTimeout, Flags: f.Flags, Cookie: f.Cookie, Packets: f.Packets(), Bytes: f.Bytes(),
			Match: f.Match, Instructions: f.program.instructions,
		})
	}
	return list, nil
}

// CountFlows returns how many flow entries, in all tables, a match covers that were made at a time
// or later.
func (s *Switch) CountFlows(m openflow.Match, since time.Duration) (n int) {
	s.net.mu.RLock()
	defer s.net.mu.RUnlock()
	value, mask, err := matchOf(m)
	if err != nil {
		return 0
	}
	for _, t := range s.tables {
		for _, f := range t.list(&value, &mask) {
			if f.created >= since {
				n++
			}
		}
	}
	return n
}

func (s *Switch) aggregate(r openflow.FlowStatsRequest) (openflow.MultipartBody, error) {
	flows, err := s.flowsFor(r)
	if err != nil {
		return nil, err
	}
	sum := openflow.AggregateStats{Flows: uint32(len(flows))}
	for _, f := range flows {
		sum.Packets += f.Packets()
		sum.Bytes += f.Bytes()
	}
	return sum, nil
}

// local describes LOCAL for a switch without such a port, where packets sent there are discarded.
// Controllers read the switch's own address from it (os-ken's lacplib fails without); it is derived
// from the datapath id (section 7.3.1).
func (s *Switch) local() openflow.Port {
	id := s.config.DatapathID
	return openflow.Port{
		Number: openflow.PortLocal, Name: s.config.Name,
		HWAddr: openflow.MAC{byte(id >> 40), byte(id >> 32), byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)},
	}
}

func age(then, now time.Duration) openflow.Duration { return openflow.DurationOf(max(now-then, 0)) }

func (s *Switch) portStats(r openflow.PortStatsRequest, now time.Duration) (openflow.MultipartBody, error) {
	list := openflow.PortStatsList{}
	for _, p := range s.order {
		if r.Port != openflow.PortAny && r.Port != p.desc.Number {
			continue
		}
		list = append(list, openflow.PortStats{
			Port: p.desc.Number, RxPackets: p.rx.Packets(), TxPackets: p.tx.Packets(), RxBytes: p.rx.Bytes(),
			TxBytes: p.tx.Bytes(), RxDropped: p.rxDropped.Packets() + p.looped.Packets(),
			TxDropped: p.txDropped.Packets(), Duration: age(p.created, now),
		})
	}
	if len(list) == 0 && r.Port != openflow.PortAny {
		return nil, refuse(openflow.BadRequestBadPort, "there is no port %d", r.Port)
	}
	return list, nil
}

// queueStats answers for a switch whose ports have no queues that could be configured.
func (s *Switch) queueStats(r openflow.QueueStatsRequest) (openflow.MultipartBody, error) {
	switch {
	case r.Port != openflow.PortAny && s.ports[r.Port] == nil:
		return nil, refuse(openflow.QueueOpFailedBadPort, "there is no port %d", r.Port)
	case r.Queue != openflow.QueueAll:
		return nil, refuse(openflow.QueueOpFailedBadQueue, "there is no queue %d", r.Queue)
	}
	return openflow.QueueStatsList{}, nil
}

// Queues answers a QUEUE_GET_CONFIG_REQUEST. The error is a *Refusal.
func (s *Switch) Queues(port uint32) ([]openflow.PacketQueue, error) {
	if port != openflow.PortAny && s.Port(port) == nil {
		return nil, refuse(openflow.QueueOpFailedBadPort, "there is no port %d", port)
	}
	return nil, nil
}

func (s *Switch) groupStats(r openflow.GroupStatsRequest, now time.Duration) (openflow.MultipartBody, error) {
	list := openflow.GroupStatsList{}
	for _, id := range slices.Sorted(maps.Keys(s.groups)) {
		if r.Group != openflow.GroupAll && r.Group != id {
			continue
		}
		g := s.groups[id]
		stats := openflow.GroupStats{Group: id, RefCount: s.references(id), Packets: g.Packets(), Bytes: g.Bytes(),
			Duration: age(g.created, now)}
		for i := range g.buckets {
			stats.Buckets = append(stats.Buckets, openflow.Counter{Packets: g.buckets[i].Packets(),
				Bytes: g.buckets[i].Bytes()})
		}
		list = append(list, stats)
	}
	return list, nil
}

func (s *Switch) meterStats(r openflow.MeterStatsRequest, now time.Duration) (openflow.MultipartBody, error) {
	list := openflow.MeterStatsList{}
	for _, id := range slices.Sorted(maps.Keys(s.meters)) {
		if r.Meter != openflow.MeterAll && r.Meter != id {
			continue
		}
		m := s.meters[id]
		stats := openflow.MeterStats{Meter: id, Packets: m.Packets(), Bytes: m.Bytes(), Duration: age(m.created, now)}
		for _, p := range s.programs {
			if p.meter == id {
				stats.Flows += uint32(p.entries)
			}
		}
		for i := range m.bands {
			stats.Bands = append(stats.Bands, openflow.Counter{Packets: m.bands[i].Packets(),
				Bytes: m.bands[i].Bytes()})
		}
		list = append(list, stats)
	}
	if len(list) == 0 && r.Meter != openflow.MeterAll {
		return nil, refuse(openflow.MeterModFailedUnknownMeter, "there is no meter %d", r.Meter)
	}
	return list, nil
}

func (s *Switch) meterConfigs(r openflow.MeterConfigRequest) (openflow.MultipartBody, error) {
	list := openflow.MeterConfigList{}
	for _, id := range slices.Sorted(maps.Keys(s.meters)) {
		if r.Meter == openflow.MeterAll || r.Meter == id {
			list = append(list, s.meters[id].config)
		}
	}
	if len(list) == 0 && r.Meter != openflow.MeterAll {
		return nil, refuse(openflow.MeterModFailedUnknownMeter, "there is no meter %d", r.Meter)
	}
	return list, nil
}
