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
type TableStatsList []TableStats

const tableStatsLen = 24

// MultipartType returns MultipartTable.
func (l TableStatsList) MultipartType() MultipartType { return MultipartTable }

func (l TableStatsList) appendTo(b []byte) []byte { return appendList(b, l) }

func (l TableStatsList) count() int { return len(l) }

func (l TableStatsList) join(more MultipartBody) MultipartBody {
	return append(l, more.(TableStatsList)...)
}

func (l TableStatsList) appendElement(b []byte, i int) []byte {
	b, p := extend(b, tableStatsLen)
	p[0] = l[i].Table
	put32(p, 4, l[i].Active)
	put64(p, 8, l[i].Lookups)
	put64(p, 16, l[i].Matched)
	return b
}

func (d decoder) tableStats(at int) TableStats {
	return TableStats{d.b[at], get32(d.b, at+4), get64(d.b, at+8), get64(d.b, at+16)}
}

// String describes the tables.
func (l TableStatsList) String() string {
	return listString(l, func(s *TableStats) string {
		return fmt.Sprintf("table=%d active=%d lookup=%d matched=%d", s.Table, s.Active, s.Lookups, s.Matched)
	})
}
