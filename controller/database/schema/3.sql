-- Routes that programs have given to routers; kept until they give others or take them back.
CREATE TABLE program_routes (
	program   TEXT NOT NULL,
	distance  INTEGER NOT NULL, -- of the program; 0: none is given
	router    TEXT NOT NULL,
	prefix    TEXT NOT NULL,
	next_hops TEXT NOT NULL,    -- none: what follows the route is dropped
	metric    INTEGER NOT NULL,
	tag       INTEGER NOT NULL
);
CREATE INDEX program_routes_program ON program_routes (program);
