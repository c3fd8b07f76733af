-- Static routes of users have a distance and a tag; 0: none is given. One without next hops discards.
ALTER TABLE user_routes ADD COLUMN distance INTEGER NOT NULL DEFAULT 0;
ALTER TABLE user_routes ADD COLUMN tag INTEGER NOT NULL DEFAULT 0;
