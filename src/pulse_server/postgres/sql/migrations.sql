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

-- name: list_functions
-- The functions of the schema, each with the checksum of its file. Read from the catalog, as above.
SELECT function.proname::text AS name, obj_description(function.oid, 'pg_proc') AS checksum
FROM pg_proc AS function
JOIN pg_namespace AS ours ON ours.oid = function.pronamespace
WHERE ours.nspname = 'pulse';
