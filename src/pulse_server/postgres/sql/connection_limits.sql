-- name: connection_limits
-- The limits for this role's connections, and the open connections of each without this session. A
-- superuser is bound by max_connections alone.
SELECT
    'max_connections' AS what,
    (current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
        - COALESCE(current_setting('reserved_connections', true), '0')::int) AS allowed,
    (SELECT COALESCE(sum(numbackends), 0)::int - 1 FROM pg_stat_database) AS used,
    'ALTER SYSTEM SET max_connections =' AS raising,
    current_setting('superuser_reserved_connections')::int
        + COALESCE(current_setting('reserved_connections', true), '0')::int AS reserved,
    ' Then restart Postgres.' AS afterwards
UNION ALL
SELECT
    format('The role %I', role.rolname), role.rolconnlimit,
    (SELECT count(*)::int - 1 FROM pg_stat_activity WHERE usename = role.rolname),
    format('ALTER ROLE %I CONNECTION LIMIT', role.rolname), 0, ''
FROM pg_roles AS role
WHERE role.rolname = SESSION_USER AND role.rolconnlimit >= 0 AND NOT role.rolsuper
UNION ALL
SELECT
    format('The database %I', database.datname), database.datconnlimit,
    (SELECT numbackends - 1 FROM pg_stat_database WHERE datid = database.oid),
    format('ALTER DATABASE %I CONNECTION LIMIT', database.datname), 0, ''
FROM pg_database AS database
WHERE database.datname = current_database() AND database.datconnlimit >= 0
  AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = SESSION_USER);
