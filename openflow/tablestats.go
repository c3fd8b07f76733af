package openflow

import "fmt"

// TableStats is ofp_table_stats (section 7.3.5.4).
type TableStats struct {
	Table   uint8
	Active  uint32 // entries
	Lookups uint64 // packets looked up
	Matched uint64 // packets that matched an entry
}

// TableStatsList is the answer to NoBody(MultipartTable).
type TableStatsList = List[TableStats, *TableStats]

const tableStatsLen = 24

func (*TableStats) listType() MultipartType { return MultipartTable }

func (s *TableStats) appendTo(b []byte) []byte {
	b, p := extend(b, tableStatsLen)
	p[0] = s.Table
	put32(p, 4, s.Active)
	put64(p, 8, s.Lookups)
	put64(p, 16, s.Matched)
	return b
}

func (d decoder) tableStats(at int) TableStats {
	return TableStats{d.b[at], get32(d.b, at+4), get64(d.b, at+8), get64(d.b, at+16)}
}

// String describes the table.
func (s *TableStats) String() string {
	return fmt.Sprintf("table=%d active=%d lookup=%d matched=%d", s.Table, s.Active, s.Lookups, s.Matched)
}
