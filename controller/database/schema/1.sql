-- What is said inside of the statements is kept in the file: sqlite3's .schema shows it.

CREATE TABLE meta (
	key   TEXT PRIMARY KEY, -- created, opened: times in UTC
	value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE switches (
	switch  TEXT PRIMARY KEY,           -- datapath id, 16 hexadecimal digits; so in all tables
	name    TEXT NOT NULL DEFAULT '',   -- of the node, where it is known
	tables  INTEGER NOT NULL DEFAULT 0, -- flow tables that it has
	buffers INTEGER NOT NULL DEFAULT 0, -- packets that it can keep
	flows   INTEGER,                    -- flow entries, when last counted
	up      INTEGER NOT NULL DEFAULT 0, -- 1: connected
	since   REAL NOT NULL DEFAULT 0     -- when it came or went: seconds since 1970, UTC; so all times
) WITHOUT ROWID;

CREATE TABLE ports (
	switch  TEXT NOT NULL,
	port    INTEGER NOT NULL, -- OpenFlow port number
	name    TEXT NOT NULL,
	mac     TEXT NOT NULL,
	up      INTEGER NOT NULL, -- 1: enabled, and its link is up
	speed   INTEGER NOT NULL, -- bit/s, as the switch says; 0: it does not
	PRIMARY KEY (switch, port)
) WITHOUT ROWID;

CREATE TABLE links (          -- each direction of a link
	from_switch TEXT NOT NULL,
	from_port   INTEGER NOT NULL,
	to_switch   TEXT NOT NULL,
	to_port     INTEGER NOT NULL,
	up          INTEGER NOT NULL, -- 0: it was there, and is remembered
	since       REAL NOT NULL,    -- when it came or went
	PRIMARY KEY (from_switch, from_port)
) WITHOUT ROWID;

CREATE TABLE hosts (
	mac       TEXT PRIMARY KEY,
	addresses TEXT NOT NULL, -- JSON list of IP addresses: see json_each
	switch    TEXT NOT NULL, -- where it is attached
	port      INTEGER NOT NULL,
	last_seen REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE flows (             -- entries of flow tables, as last read
	switch       TEXT NOT NULL,
	table_id     INTEGER NOT NULL,
	priority     INTEGER NOT NULL,
	match        TEXT NOT NULL,  -- as ovs-ofctl writes it; empty: every packet
	instructions TEXT NOT NULL,  -- as ovs-ofctl writes actions
	cookie       TEXT NOT NULL,  -- hexadecimal, 0x…
	app          TEXT NOT NULL,  -- who made it, where that is known
	packets      INTEGER,        -- NULL: the switch does not count; so all counters
	bytes        INTEGER,
	duration     REAL NOT NULL,  -- seconds that it had been there, at time
	time         REAL NOT NULL,  -- when it was read
	PRIMARY KEY (switch, table_id, priority, match)
) WITHOUT ROWID;

CREATE TABLE groups (
	switch   TEXT NOT NULL,
	group_id INTEGER NOT NULL,
	type     TEXT NOT NULL,   -- all, select, indirect, ff
	buckets  TEXT NOT NULL,   -- JSON list of actions, as ovs-ofctl writes them
	packets  INTEGER,
	bytes    INTEGER,
	duration REAL NOT NULL,
	time     REAL NOT NULL,
	PRIMARY KEY (switch, group_id)
) WITHOUT ROWID;

CREATE TABLE routes (          -- of routers, as they forward by them
	router    TEXT NOT NULL,   -- name of the node
	prefix    TEXT NOT NULL,
	source    TEXT NOT NULL,   -- connected, static, ospf, …
	next_hops TEXT NOT NULL,   -- JSON list: addresses, or devices of connected prefixes
	metric    INTEGER NOT NULL,
	PRIMARY KEY (router, prefix, source)
) WITHOUT ROWID;

CREATE TABLE port_load (       -- in time. No row: no traffic in that time, or an older one that has been deleted
	time        REAL NOT NULL, -- end of the interval
	interval    REAL NOT NULL, -- seconds over which the rates are; 0: no rates, counters only
	switch      TEXT NOT NULL,
	port        INTEGER NOT NULL,
	rx_packets  INTEGER,       -- counters as the switch gives them: from its start, or the port's
	tx_packets  INTEGER,
	rx_bytes    INTEGER,
	tx_bytes    INTEGER,
	rx_dropped  INTEGER,
	tx_dropped  INTEGER,
	rx_errors   INTEGER,
	tx_errors   INTEGER,
	rx_rate     REAL,          -- bit/s
	tx_rate     REAL,
	utilisation REAL           -- of the busier direction: 1 is all of the capacity; NULL: capacity not known
);
CREATE INDEX port_load_time ON port_load (time);

CREATE TABLE packets_in (      -- packets that came to the controller, in time. No row: none
	time     REAL NOT NULL,    -- end of the interval
	interval REAL NOT NULL,    -- seconds
	switch   TEXT NOT NULL,
	family   TEXT NOT NULL,    -- arp, ipv4, ipv6, lldp, other
	protocol TEXT NOT NULL,    -- arp, icmp, tcp, …: see controller/monitor
	packets  INTEGER NOT NULL, -- in the interval
	bytes    INTEGER NOT NULL
);
CREATE INDEX packets_in_time ON packets_in (time);

CREATE TABLE user_flows (      -- what users have asked for; kept until they take it back
	id       INTEGER PRIMARY KEY AUTOINCREMENT,
	switch   TEXT NOT NULL,
	table_id INTEGER NOT NULL,
	priority INTEGER NOT NULL,
	match    TEXT NOT NULL,
	flow     TEXT NOT NULL,    -- the whole entry, as ovs-ofctl add-flow reads it
	created  REAL NOT NULL,
	UNIQUE (switch, table_id, priority, match)
);

CREATE TABLE user_routes (
	id        INTEGER PRIMARY KEY AUTOINCREMENT,
	router    TEXT NOT NULL,
	prefix    TEXT NOT NULL,
	next_hops TEXT NOT NULL,
	metric    INTEGER NOT NULL,
	created   REAL NOT NULL,
	UNIQUE (router, prefix)
);
