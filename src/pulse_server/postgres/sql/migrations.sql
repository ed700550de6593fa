-- Reads whether the schema is the one that a server was built for.

-- name: find_migrations
-- Whether any migration was ever applied. Read from the catalog, which a role without rights on the schema may read.
SELECT EXISTS (
    SELECT
    FROM pg_class AS class
    JOIN pg_namespace AS ours ON ours.oid = class.relnamespace
    WHERE ours.nspname = 'pulse' AND class.relname = 'schema_migrations'
);

-- name: list_migrations
-- Those that were. A statement of its own: where there is no table, it cannot even be read.
SELECT version, name, checksum, applied_at FROM pulse.schema_migrations;

-- name: list_functions
-- The functions of the schema, each with the checksum of the file that it was installed from. Read from the catalog, as above.
SELECT function.proname::text AS name, obj_description(function.oid, 'pg_proc') AS checksum
FROM pg_proc AS function
JOIN pg_namespace AS ours ON ours.oid = function.pronamespace
WHERE ours.nspname = 'pulse';
