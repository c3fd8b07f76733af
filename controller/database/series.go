package database

import (
	"math"
	"time"
)

// NoCounter is a counter that the switch does not keep (OpenFlow 1.3.5, section 7.3.5);
// in the file it is NULL.
const NoCounter = math.MaxUint64

// Load is a row of port_load: the counters of a port at a time, and the rates since the previous
// row.
type Load struct {
	Time     time.Time
	Interval time.Duration // of the rates, ending at Time; 0: there are none
	Switch   uint64
	Port     uint32

	RxPackets, TxPackets uint64
	RxBytes, TxBytes     uint64
	RxDropped, TxDropped uint64
	RxErrors, TxErrors   uint64

	RxRate, TxRate float64 // bit/s
	Utilisation    float64 // of the busier direction, 1 is all of the capacity; NaN: the capacity is unknown
}

// PacketsIn is a row of packets_in: packets from a switch to the controller.
type PacketsIn struct {
	Time             time.Time
	Interval         time.Duration // ending at Time, in which the packets arrived
	Switch           uint64
	Family, Protocol string
	Packets, Bytes   uint64
}

// AddLoads queues rows. They must not be changed afterwards.
func (d *DB) AddLoads(rows []Load) {
	add(d, rows, func(w *writer, l *Load) {
		var rx, tx, utilisation any
		if l.Interval > 0 {
			rx, tx, utilisation = number(l.RxRate), number(l.TxRate), number(l.Utilisation)
		}
		w.do("INSERT INTO port_load VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
			seconds(l.Time), l.Interval.Seconds(), dpidText(l.Switch), int64(l.Port),
			counter(l.RxPackets), counter(l.TxPackets), counter(l.RxBytes), counter(l.TxBytes),
			counter(l.RxDropped), counter(l.TxDropped), counter(l.RxErrors), counter(l.TxErrors), rx, tx, utilisation)
	})
}

// AddPackets queues rows. They must not be changed afterwards.
func (d *DB) AddPackets(rows []PacketsIn) {
	add(d, rows, func(w *writer, p *PacketsIn) {
		w.do("INSERT INTO packets_in VALUES (?,?,?,?,?,?,?)", seconds(p.Time), p.Interval.Seconds(),
			dpidText(p.Switch), p.Family, p.Protocol, counter(p.Packets), counter(p.Bytes))
	})
}

// add queues rows of a time series, in portions that fit a batch.
func add[R any](d *DB, rows []R, insert func(*writer, *R)) {
	for len(rows) > 0 {
		part := rows[:min(len(rows), batchRows)]
		rows = rows[len(part):]
		d.enqueue("", len(part), func(w *writer) {
			for i := range part {
				insert(w, &part[i])
			}
		})
	}
}

// trim deletes up to n of the oldest rows of each time series that exceed its age or size. It is
// called after each batch for more rows than were written, so that the series shrink in small
// steps. Errors are not returned here: the next batch has the same error, and reports it.
func (d *DB) trim(n int) {
	before := seconds(time.Now().Add(-d.o.Retention))
	_ = d.w.transaction(func(w *writer) {
		for _, table := range []string{"port_load", "packets_in"} {
			w.trim(table, n, d.o.MaxRows, before)
		}
	})
}

// trim relies on rows being added only above the highest rowid and deleted only from below: the
// rowids give the number of rows without counting.
func (w *writer) trim(table string, n, most int, before float64) {
	var first, last int64
	w.values("SELECT coalesce((SELECT min(rowid) FROM "+table+"), 0), coalesce((SELECT max(rowid) FROM "+table+"), -1)",
		nil, &first, &last)
	if last >= first {
		w.do("DELETE FROM "+table+" WHERE rowid < ? AND (rowid <= ? OR time < ?)", first+int64(n), last-int64(most),
			before)
	}
}

// Loads returns the rows of a port in [from, to), the oldest first, at most limit.
func (d *DB) Loads(dpid uint64, port uint32, from, to time.Time, limit int) ([]Load, error) {
	return query(d, func(scan func(...any) error) (l Load, err error) {
		var at, interval float64
		var c [8]*int64
		var rx, tx, utilisation *float64
		if err := scan(&at, &interval, &c[0], &c[1], &c[2], &c[3], &c[4], &c[5], &c[6], &c[7], &rx, &tx,
			&utilisation); err != nil {
			return l, err
		}
		l = Load{Time: timeOf(at), Interval: time.Duration(interval * 1e9), Switch: dpid, Port: port,
			Utilisation: math.NaN()}
		for i, to := range []*uint64{&l.RxPackets, &l.TxPackets, &l.RxBytes, &l.TxBytes, &l.RxDropped, &l.TxDropped,
			&l.RxErrors, &l.TxErrors} {
			*to = NoCounter
			if c[i] != nil {
				*to = uint64(*c[i])
			}
		}
		for _, v := range []struct{ from, to *float64 }{{rx, &l.RxRate}, {tx, &l.TxRate},
			{utilisation, &l.Utilisation}} {
			if v.from != nil {
				*v.to = *v.from
			}
		}
		return l, nil
	}, `SELECT time, interval, rx_packets, tx_packets, rx_bytes, tx_bytes, rx_dropped, tx_dropped, rx_errors, tx_errors,
		rx_rate, tx_rate, utilisation FROM port_load
		WHERE time >= ? AND time < ? AND switch = ? AND port = ? ORDER BY time LIMIT ?`,
		seconds(from), seconds(to), dpidText(dpid), int64(port), limit)
}
