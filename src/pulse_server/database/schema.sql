-- Reads whether the schema fits the server.

-- name: find_migrations
-- Whether any migration was ever applied. Read from the catalog, which needs no rights on the
-- schema.
SELECT EXISTS (
    SELECT
    FROM pg_class AS class
    JOIN pg_namespace AS ours ON ours.oid = class.relnamespace
    WHERE ours.nspname = 'pulse' AND class.relname = 'schema_migrations'
);

-- name: list_migrations
-- The applied migrations. A separate statement: without the table it fails to parse.
SELECT version, name, checksum, applied_at FROM pulse.schema_migrations;

-- name: holders_of_turn(key)
-- The sessions that hold the advisory lock :key, in words; NULL if none does any more. Any role that may
-- connect can take it.
SELECT string_agg({session_in_words}, '; ' ORDER BY lock.pid) AS holders
FROM pg_locks AS lock
LEFT JOIN pg_stat_activity AS session ON session.pid = lock.pid
WHERE lock.locktype = 'advisory' AND lock.granted AND lock.objsubid = 1
  AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND lock.classid::bigint = :key::bigint >> 32 AND lock.objid::bigint = :key::bigint & 4294967295
  AND (lock.pid IS NULL OR session.pid IS NOT NULL);

-- name: list_functions
-- The functions of the schema, each with the checksum of its file. Read from the catalog, as above.
SELECT function.proname::text AS name, obj_description(function.oid, 'pg_proc') AS checksum
FROM pg_proc AS function
JOIN pg_namespace AS ours ON ours.oid = function.pronamespace
WHERE ours.nspname = 'pulse';
