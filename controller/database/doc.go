// Package database keeps what the controller knows in one SQLite file: the network
// (switches, ports, links, hosts), what the switches hold (flows, groups), routes, the
// load of ports and the packets at the controller in time, and what users have asked for.
//
// It is there for two readers. A researcher opens the file with sqlite3, also while the
// controller runs:
//
//	SELECT datetime(time, 'unixepoch'), rx_rate / 1e6, utilisation FROM port_load
//	 WHERE switch = '0000000000000001' AND port = 2;
//	SELECT family, sum(packets) FROM packets_in GROUP BY family;
//	SELECT switch, count(*) FROM flows GROUP BY switch;
//
// The tables are described where they are made, in schema/, and by sqlite3's .schema.
// The other reader is the controller's next run: what it remembers (Switches, Links,
// Hosts) and what it must bring back (Store).
//
// Writing never blocks who writes. Rows wait in a bounded queue, one goroutine writes them
// about once a second. Of a thing's state only the latest waits; rows that find the
// queue full are dropped, counted (Stats) and reported in the log. What users ask for is
// different: it is on the disk when the call returns (Store).
package database
