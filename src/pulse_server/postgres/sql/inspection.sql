-- What `pulsed check` asks of a database before anything is served from it. Nothing is changed, nothing is locked.

-- name: inspect_server
-- The server, and how many more connections it would take from this role: each limit that there is, less what is
-- open now. Sessions of other roles tell about themselves only to a member of pg_read_all_stats.
SELECT
    current_setting('server_version') AS version,
    current_user::text AS role,
    current_database()::text AS database,
    pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on' AS is_read_only,
    clock_timestamp() AS now,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('fsync') = 'on' AS has_fsync,
    current_setting('max_connections')::int AS max_connections,
    LEAST(
        current_setting('max_connections')::int
            - current_setting('superuser_reserved_connections')::int
            - COALESCE(current_setting('reserved_connections', true), '0')::int
            - (SELECT COALESCE(sum(numbackends), 0)::int FROM pg_stat_database),
        (SELECT NULLIF(datconnlimit, -1) - (SELECT numbackends FROM pg_stat_database WHERE datname = current_database())
         FROM pg_database WHERE datname = current_database()),
        (SELECT NULLIF(rolconnlimit, -1) - (SELECT count(*)::int FROM pg_stat_activity WHERE usename = current_user)
         FROM pg_roles WHERE rolname = current_user)
    ) AS connections_left,
    (SELECT count(*)::int FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'pulsed%' AND pid <> pg_backend_pid()
    ) AS connections_of_pulsed,
    COALESCE(
        (SELECT EXTRACT(epoch FROM clock_timestamp() - min(xact_start))::float8 FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()), 0
    ) AS oldest_transaction_seconds,
    COALESCE(
        (SELECT EXTRACT(epoch FROM clock_timestamp() - min(state_change))::float8 FROM pg_stat_activity
         WHERE datname = current_database() AND state LIKE 'idle in transaction%'), 0
    ) AS idle_in_transaction_seconds,
    has_database_privilege(current_database(), 'CREATE') AS may_create_schema,
    (SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'pulse') AS owns_schema;

-- name: inspect_privileges
-- The tables that this role could not work with, and what it lacks there.
SELECT
    class.relname::text AS relation,
    string_agg(needed.privilege, ', ' ORDER BY needed.place) AS lacking
FROM pg_class AS class
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) WITH ORDINALITY AS needed(privilege, place)
WHERE namespace.nspname = 'pulse'
  AND class.relkind IN ('r', 'p')
  AND (needed.privilege = 'SELECT' OR class.relname <> 'schema_migrations')
  AND NOT (
      has_schema_privilege(namespace.oid, 'USAGE') AND has_table_privilege(class.oid, needed.privilege)
  )
GROUP BY class.relname
ORDER BY class.relname;
