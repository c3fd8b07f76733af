package openflow

import "fmt"

// MeterStatsRequest asks for the counters of a meter, or of all with MeterAll (section 7.3.5.12).
type MeterStatsRequest struct{ Meter uint32 }

// MeterConfigRequest asks for the configuration of a meter, or of all with MeterAll (section
// 7.3.5.13).
type MeterConfigRequest struct{ Meter uint32 }

// MultipartType returns MultipartMeter.
func (r MeterStatsRequest) MultipartType() MultipartType { return MultipartMeter }

// MultipartType returns MultipartMeterConfig.
func (r MeterConfigRequest) MultipartType() MultipartType { return MultipartMeterConfig }

func (r MeterStatsRequest) appendTo(b []byte) []byte { return appendNumbers(b, r.Meter, 0) }

func (r MeterConfigRequest) appendTo(b []byte) []byte { return appendNumbers(b, r.Meter, 0) }

// String describes the request.
func (r MeterStatsRequest) String() string { return "meter=" + meterName(r.Meter) }

// String describes the request.
func (r MeterConfigRequest) String() string { return "meter=" + meterName(r.Meter) }

// MeterStats is ofp_meter_stats (section 7.3.5.12).
type MeterStats struct {
	Meter    uint32
	Flows    uint32 // entries that point to it
	Packets  uint64 // in
	Bytes    uint64 // in
	Duration Duration
	Bands    []Counter
}

// MeterStatsList is the answer to a MeterStatsRequest.
type MeterStatsList = List[MeterStats, *MeterStats]

func (*MeterStats) listType() MultipartType { return MultipartMeter }

func (s *MeterStats) appendTo(b []byte) []byte {
	at := len(b)
	b, p := extend(b, 40)
	put32(p, 0, s.Meter)
	put32(p, 12, s.Flows)
	put64(p, 16, s.Packets)
	put64(p, 24, s.Bytes)
	s.Duration.put(p, 32)
	b = appendCounters(b, s.Bands)
	put16(b, at+4, uint16(len(b)-at))
	return b
}

func (d decoder) meterStats(s *MeterStats, at, end int) (err error) {
	*s = MeterStats{
		Meter: get32(d.b, at), Flows: get32(d.b, at+12),
		Packets: get64(d.b, at+16), Bytes: get64(d.b, at+24), Duration: getDuration(d.b, at+32),
	}
	s.Bands, err = d.counters(at+40, end)
	return err
}

// String describes the counters.
func (s *MeterStats) String() string {
	return fmt.Sprintf("meter:%s flow_count:%d packet_in_count:%d byte_in_count:%d duration:%v bands:%v",
		meterName(s.Meter), s.Flows, s.Packets, s.Bytes, s.Duration, s.Bands)
}

// MeterConfigList is the answer to a MeterConfigRequest.
type MeterConfigList = List[MeterConfig, *MeterConfig]

func (*MeterConfig) listType() MultipartType { return MultipartMeterConfig }

func (c *MeterConfig) appendTo(b []byte) []byte {
	at := len(b)
	b, p := extend(b, 8)
	put16(p, 2, uint16(c.Flags))
	put32(p, 4, c.Meter)
	b = appendBands(b, c.Bands)
	put16(b, at, uint16(len(b)-at))
	return b
}

func (d decoder) meterConfig(c *MeterConfig, at, end int) (err error) {
	c.Flags, c.Meter = MeterFlags(get16(d.b, at+2)), get32(d.b, at+4)
	c.Bands, err = d.bands(at+8, end)
	return err
}

// MeterFeatures is ofp_meter_features, the answer to NoBody(MultipartMeterFeatures) (section
// 7.3.5.14).
type MeterFeatures struct {
	MaxMeters    uint32
	BandTypes    uint32 // bit t stands for MeterBandType t
	Capabilities uint32 // a set of MeterFlags
	MaxBands     uint8  // of a meter
	MaxColor     uint8
}

// MultipartType returns MultipartMeterFeatures.
func (f MeterFeatures) MultipartType() MultipartType { return MultipartMeterFeatures }

func (f MeterFeatures) appendTo(b []byte) []byte {
	b, p := extend(b, 16)
	put32(p, 0, f.MaxMeters)
	put32(p, 4, f.BandTypes)
	put32(p, 8, f.Capabilities)
	p[12], p[13] = f.MaxBands, f.MaxColor
	return b
}

func (d decoder) meterFeatures() (MultipartBody, error) {
	if err := d.exactly(bodyAt + 16); err != nil {
		return nil, err
	}
	return MeterFeatures{
		get32(d.b, bodyAt), get32(d.b, bodyAt+4), get32(d.b, bodyAt+8), d.b[bodyAt+12], d.b[bodyAt+13],
	}, nil
}

// String describes the features.
func (f MeterFeatures) String() string {
	return fmt.Sprintf("max_meter=%d band_types=%#x capabilities=%v max_bands=%d max_color=%d",
		f.MaxMeters, f.BandTypes, MeterFlags(f.Capabilities), f.MaxBands, f.MaxColor)
}
