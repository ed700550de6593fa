-- What tells whether the schema is the one that a server was built for.

-- name: find_migrations
-- Whether any migration was ever applied.
SELECT to_regclass('pulse.schema_migrations') IS NOT NULL;

-- name: list_migrations
-- Those that were. A statement of its own: where there is no table, it cannot even be read.
SELECT version, name, checksum, applied_at FROM pulse.schema_migrations;
