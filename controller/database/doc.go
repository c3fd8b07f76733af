// Package database keeps what the controller knows in one SQLite file: the network (switches,
// ports, links, hosts), what the switches hold (flows, groups), routes, the load of ports and the
// packets to the controller over time, and what users have added.
//
// It has two kinds of readers. A researcher opens the file with sqlite3, even while the controller
// runs:
//
//	SELECT datetime(time, 'unixepoch'), rx_rate / 1e6, utilisation FROM port_load
//	 WHERE switch = '0000000000000001' AND port = 2;
//	SELECT family, sum(packets) FROM packets_in GROUP BY family;
//	SELECT switch, count(*) FROM flows GROUP BY switch;
//
// The tables are described where they are created, in schema/, and by sqlite3's .schema. The other
// reader is the controller's next run: what it remembers (Switches, Links, Hosts) and what it must
// restore (Store).
//
// Writing never blocks the caller. Rows are queued, and one goroutine writes them about once a
// second. Of the state of a thing, only the latest version is queued. Rows that find the queue full
// are dropped, counted (Stats) and reported in the log. Entries of the Store are different: they
// are on the disk when the call returns.
package database
