-- What has to outlive the controller, as its store has it (controller/store): what users and programs have asked for.
CREATE TABLE kept (
	key      TEXT PRIMARY KEY,
	value    TEXT NOT NULL,   -- JSON
	revision INTEGER NOT NULL -- of its last change: grows with each change of the store
) WITHOUT ROWID;

INSERT INTO kept SELECT printf('user/flow/%s/%d/%d/%s', switch, table_id, priority, match), json_object('id', id, 'switch', switch,
	'table', table_id, 'priority', priority, 'match', match, 'flow', flow, 'created', created), 1 FROM user_flows;
INSERT INTO kept SELECT 'user/flow-number', seq, 1 FROM sqlite_sequence WHERE name = 'user_flows';
INSERT INTO kept SELECT 'user/route/' || router || '/' || prefix, json_object('router', router, 'prefix', prefix, 'next_hops', json(next_hops),
	'distance', distance, 'metric', metric, 'tag', tag, 'created', created), 1 FROM user_routes;
INSERT INTO kept SELECT 'program/' || program, json_object('program', program, 'distance', max(distance), 'routes', json_group_array(json_object(
	'router', router, 'prefix', prefix, 'next_hops', json(next_hops), 'metric', metric, 'tag', tag))), 1 FROM program_routes GROUP BY program;

DROP TABLE user_flows;
DROP TABLE user_routes;
DROP TABLE program_routes;

CREATE VIEW user_flows AS SELECT    -- what users have asked for; kept until they take it back
	json_extract(value, '$.id')       AS id,
	json_extract(value, '$.switch')   AS switch,
	json_extract(value, '$.table')    AS table_id,
	json_extract(value, '$.priority') AS priority,
	json_extract(value, '$.match')    AS match,
	json_extract(value, '$.flow')     AS flow,    -- the whole entry, as ovs-ofctl add-flow reads it
	json_extract(value, '$.created')  AS created  -- seconds since 1970, UTC
	FROM kept WHERE key GLOB 'user/flow/*';

CREATE VIEW user_routes AS SELECT   -- static routes of users; one without next hops discards
	json_extract(value, '$.router')    AS router,
	json_extract(value, '$.prefix')    AS prefix,
	json_extract(value, '$.next_hops') AS next_hops, -- JSON list
	json_extract(value, '$.distance')  AS distance,  -- 0: none is given
	json_extract(value, '$.metric')    AS metric,
	json_extract(value, '$.tag')       AS tag,       -- 0: none is given
	json_extract(value, '$.created')   AS created
	FROM kept WHERE key GLOB 'user/route/*';

CREATE VIEW program_routes AS SELECT -- routes that programs have given to routers; kept until they give others or take them back
	json_extract(kept.value, '$.program')       AS program,
	json_extract(kept.value, '$.distance')      AS distance, -- of the program; 0: none is given
	json_extract(route.value, '$.router')       AS router,
	json_extract(route.value, '$.prefix')       AS prefix,
	json_extract(route.value, '$.next_hops')    AS next_hops, -- none: what follows the route is dropped
	json_extract(route.value, '$.metric')       AS metric,
	json_extract(route.value, '$.tag')          AS tag
	FROM kept, json_each(kept.value, '$.routes') AS route WHERE kept.key GLOB 'program/*';
