-- The missing GRANTs of this role, as a DBA would run them. No row: none is missing.
--
-- What `pulsed check` reads from a database before a server uses it. Nothing is changed, nothing is
-- locked.

-- name: grants_to_look
-- To read which migrations were applied.
SELECT format('GRANT USAGE ON SCHEMA pulse TO %I;', CURRENT_USER) AS statement
FROM pg_namespace AS ours
WHERE ours.nspname = 'pulse' AND NOT has_schema_privilege(ours.oid, 'USAGE')
UNION ALL
SELECT format('GRANT SELECT ON pulse.schema_migrations TO %I;', CURRENT_USER)
FROM pg_class AS class
JOIN pg_namespace AS ours ON ours.oid = class.relnamespace
WHERE ours.nspname = 'pulse' AND class.relname = 'schema_migrations' AND NOT has_table_privilege(class.oid, 'SELECT');

-- name: grants_to_serve
-- To use every table and function of the schema. Partitions are used through their table, and views are only read.
SELECT format('GRANT USAGE ON SCHEMA pulse TO %I;', CURRENT_USER) AS statement
FROM pg_namespace AS ours
WHERE ours.nspname = 'pulse' AND NOT has_schema_privilege(ours.oid, 'USAGE')
UNION ALL
SELECT format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pulse TO %I;', CURRENT_USER)
WHERE EXISTS (
    SELECT
    FROM pg_class AS class
    JOIN pg_namespace AS ours ON ours.oid = class.relnamespace
    CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS privilege
    WHERE ours.nspname = 'pulse'
      AND class.relkind IN ('r', 'p', 'v')
      AND NOT class.relispartition
      AND (privilege = 'SELECT' OR (class.relname <> 'schema_migrations' AND class.relkind <> 'v'))
      AND NOT has_table_privilege(class.oid, privilege)
)
UNION ALL
SELECT format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pulse TO %I;', CURRENT_USER)
WHERE EXISTS (
    SELECT
    FROM pg_proc AS function
    JOIN pg_namespace AS ours ON ours.oid = function.pronamespace
    WHERE ours.nspname = 'pulse' AND NOT has_function_privilege(function.oid, 'EXECUTE')
);

-- name: grants_to_migrate(names)
-- To make the schema. Where a DBA made it: to make tables in it, and to change the tables named in
-- :names, directly or by an index. NULL: all tables.
SELECT format('GRANT CREATE ON DATABASE %I TO %I;', current_database(), CURRENT_USER) AS statement
WHERE NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'pulse')
  AND NOT has_database_privilege(current_database(), 'CREATE')
UNION ALL
SELECT format('GRANT USAGE, CREATE ON SCHEMA pulse TO %I;', CURRENT_USER)
FROM pg_namespace AS ours
WHERE ours.nspname = 'pulse'
  AND NOT (has_schema_privilege(ours.oid, 'USAGE') AND has_schema_privilege(ours.oid, 'CREATE'))
UNION ALL
-- Only the owner of a table, or a member of that role, may change it.
SELECT DISTINCT format('GRANT %I TO %I;', pg_get_userbyid(class.relowner), CURRENT_USER)
FROM pg_class AS class
JOIN pg_namespace AS ours ON ours.oid = class.relnamespace
WHERE ours.nspname = 'pulse'
  AND class.relkind IN ('r', 'p', 'i')
  AND (:names::text[] IS NULL OR class.relname = ANY(:names))
  AND NOT pg_has_role(class.relowner, 'USAGE')
UNION
SELECT format('GRANT %I TO %I;', pg_get_userbyid(function.proowner), CURRENT_USER)
FROM pg_proc AS function
JOIN pg_namespace AS ours ON ours.oid = function.pronamespace
WHERE ours.nspname = 'pulse'
  AND (:names::text[] IS NULL OR function.proname = ANY(:names))
  AND NOT pg_has_role(function.proowner, 'USAGE');

-- name: grants_of_functions(names)
-- For the functions in :names, which not every role may call. A role that may delete jobs runs a server,
-- and needs them. So does the owner of the tables, whose functions call them, if another role has made them.
SELECT format('GRANT EXECUTE ON FUNCTION %s TO %s', function.oid::regprocedure,
              CASE needs.role WHEN 0 THEN 'PUBLIC' ELSE needs.role::regrole::text END) AS statement
FROM pg_proc AS function
CROSS JOIN (
    SELECT class.relowner AS role FROM pg_class AS class WHERE class.oid = 'pulse.jobs'::regclass
    UNION
    SELECT granted.grantee
    FROM pg_class AS class
    CROSS JOIN LATERAL aclexplode(class.relacl) AS granted
    WHERE class.oid = 'pulse.jobs'::regclass AND granted.privilege_type = 'DELETE'
) AS needs
WHERE function.pronamespace = 'pulse'::regnamespace AND function.proname = ANY(:names::text[])
  AND needs.role <> function.proowner;

-- name: grants_on_function(name)
-- The rights of other roles to the function :name.
SELECT format('GRANT EXECUTE ON FUNCTION pulse.%I TO %s', function.proname,
              CASE granted.grantee WHEN 0 THEN 'PUBLIC' ELSE granted.grantee::regrole::text END) AS statement
FROM pg_proc AS function
CROSS JOIN LATERAL aclexplode(function.proacl) AS granted
WHERE function.pronamespace = 'pulse'::regnamespace AND function.proname = :name
  AND granted.grantee <> function.proowner;

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

-- name: inspect_server
-- The server. Activity of other roles' sessions is visible only to a member of pg_read_all_stats.
SELECT
    current_setting('server_version') AS version,
    current_user::text AS role,
    current_database()::text AS database,
    pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on' AS is_read_only,
    clock_timestamp() AS now,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('fsync') = 'on' AS has_fsync,
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
    (SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'pulse') AS owns_schema,
    EXISTS (
        SELECT
        FROM pg_database AS own
        CROSS JOIN LATERAL aclexplode(COALESCE(own.datacl, acldefault('d', own.datdba))) AS acl
        WHERE own.datname = current_database() AND acl.grantee = 0 AND acl.privilege_type = 'CONNECT'
    ) AS connect_is_public;

-- name: inspect_privileges
-- The tables that this role cannot fully use, and the missing privileges. Partitions are used
-- through their table, and the view is only read.
SELECT
    class.relname::text AS relation,
    string_agg(needed.privilege, ', ' ORDER BY needed.place) AS lacking
FROM pg_class AS class
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) WITH ORDINALITY AS needed(privilege, place)
WHERE namespace.nspname = 'pulse'
  AND class.relkind IN ('r', 'p', 'v')
  AND NOT class.relispartition
  AND (needed.privilege = 'SELECT' OR (class.relname <> 'schema_migrations' AND class.relkind <> 'v'))
  AND NOT (
      has_schema_privilege(namespace.oid, 'USAGE') AND has_table_privilege(class.oid, needed.privilege)
  )
GROUP BY class.relname
ORDER BY class.relname;

-- name: inspect_identities
-- Our tables that a publication covers, directly or through their partitioned table, and whose rows
-- it keeps from being changed or deleted: without a replica identity a subscriber could not find
-- the rows.
SELECT class.oid::regclass::text AS relation, min(publication.pubname)::text AS publication
FROM pg_class AS class
JOIN pg_publication AS publication ON publication.pubupdate OR publication.pubdelete
WHERE class.relnamespace = to_regnamespace('pulse')
  AND class.relkind = 'r'
  AND class.relreplident <> 'f'
  AND NOT EXISTS (
      SELECT
      FROM pg_index AS key
      WHERE key.indrelid = class.oid
        AND key.indisvalid
        AND CASE class.relreplident WHEN 'd' THEN key.indisprimary WHEN 'i' THEN key.indisreplident END
  )
  AND EXISTS (
      SELECT
      FROM pg_publication_tables AS published
      WHERE published.pubname = publication.pubname
        AND to_regclass(format('%I.%I', published.schemaname, published.tablename)) IN (
            SELECT class.oid UNION ALL SELECT relid FROM pg_partition_ancestors(class.oid)
        )
  )
GROUP BY class.oid
ORDER BY relation;

-- name: inspect_creators
-- The roles that may create functions and operators in the schemas where sessions look up names.
-- Owners, superusers and this role are left out.
SELECT
    namespace.nspname::text AS schema,
    string_agg(COALESCE(quote_ident(grantee.rolname), 'PUBLIC'), ', ' ORDER BY grantee.rolname NULLS FIRST) AS roles
FROM pg_namespace AS namespace
CROSS JOIN LATERAL aclexplode(namespace.nspacl) AS acl
LEFT JOIN pg_roles AS grantee ON grantee.oid = acl.grantee
WHERE namespace.nspname IN ('public', 'pulse')
  AND acl.privilege_type = 'CREATE'
  AND acl.grantee <> namespace.nspowner
  AND NOT COALESCE(grantee.rolsuper OR grantee.rolname = current_user, false)
GROUP BY namespace.nspname
ORDER BY namespace.nspname;

-- name: inspect_shadows
-- Functions and operators that another role made under the name of a built-in one, or in our
-- schema. Objects of extensions, of superusers, of the schema's owner and of this role do not
-- count. Returns a few names per owner.
WITH found AS (
    SELECT proc.oid::regprocedure::text AS name, proc.pronamespace AS namespace, proc.proowner AS owner
    FROM pg_proc AS proc
    WHERE NOT EXISTS (
        SELECT FROM pg_depend AS part
        WHERE part.classid = 'pg_proc'::regclass AND part.objid = proc.oid AND part.deptype = 'e'
    )
      AND (
          proc.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'pulse')
          OR EXISTS (
              SELECT FROM pg_proc AS builtin
              WHERE builtin.proname = proc.proname AND builtin.pronamespace = 'pg_catalog'::regnamespace
          )
      )
    UNION ALL
    SELECT 'operator ' || operator.oid::regoperator::text, operator.oprnamespace, operator.oprowner
    FROM pg_operator AS operator
    WHERE NOT EXISTS (
        SELECT FROM pg_depend AS part
        WHERE part.classid = 'pg_operator'::regclass AND part.objid = operator.oid AND part.deptype = 'e'
    )
      AND EXISTS (
          SELECT FROM pg_operator AS builtin
          WHERE builtin.oprname = operator.oprname AND builtin.oprnamespace = 'pg_catalog'::regnamespace
      )
)
SELECT owner.rolname::text AS owner, array_to_string((array_agg(found.name ORDER BY found.name))[1:3], ', ') AS names,
    count(*)::int AS total
FROM found
JOIN pg_namespace AS namespace ON namespace.oid = found.namespace
JOIN pg_roles AS owner ON owner.oid = found.owner
WHERE namespace.nspname IN ('public', 'pulse')
  AND NOT owner.rolsuper
  AND owner.rolname <> current_user
  AND NOT (namespace.nspname = 'pulse' AND owner.oid = namespace.nspowner)
GROUP BY owner.rolname
ORDER BY owner.rolname;

-- name: inspect_onlookers
-- Roles that may log in and connect here, and do not serve. Superusers are among them: they do everything.
SELECT
    quote_ident(role.rolname) AS name,
    role.rolsuper AS is_superuser,
    pg_has_role(role.oid, 'pg_read_all_stats', 'MEMBER') AS sees_statements,
    COALESCE(has_table_privilege(role.oid, secret.oid, 'SELECT'), false) AS reads_secret
FROM pg_roles AS role
-- Not to_regclass: it raises an error for a role that may not use the schema.
LEFT JOIN pg_class AS jobs ON jobs.relname = 'jobs' AND jobs.relnamespace = to_regnamespace('pulse')
LEFT JOIN pg_class AS secret ON secret.relname = 'cluster_secret' AND secret.relnamespace = to_regnamespace('pulse')
WHERE role.rolcanlogin
  AND role.rolname <> current_user
  AND has_database_privilege(role.oid, current_database(), 'CONNECT')
  AND (role.rolsuper OR NOT COALESCE(has_table_privilege(role.oid, jobs.oid, 'DELETE'), false))
ORDER BY role.rolname;

-- name: inspect_interface(rights, functions)
-- The roles that were granted functions of the interface, by right, and whether each may call all
-- functions of the right. NULL is PUBLIC. Left out are the owner and roles that serve.
-- :functions has the function of each of the :rights.
WITH function AS MATERIALIZED (
    SELECT proc.oid, proc.proowner AS owner, COALESCE(proc.proacl, acldefault('f', proc.proowner)) AS acl, given.right
    FROM unnest(:rights::text[], :functions::text[]) AS given ("right", name)
    JOIN pg_proc AS proc ON proc.proname = given.name AND proc.pronamespace = to_regnamespace('pulse')
)
SELECT
    function.right,
    role.rolname::text AS role,
    COALESCE(
        bool_and(has_schema_privilege(role.oid, 'pulse', 'USAGE'))
        AND NOT EXISTS (
            SELECT FROM function AS other
            WHERE other.right = function.right AND NOT has_function_privilege(role.oid, other.oid, 'EXECUTE')
        ), false) AS is_whole
FROM function
CROSS JOIN LATERAL aclexplode(function.acl) AS granted
LEFT JOIN pg_roles AS role ON role.oid = granted.grantee
WHERE granted.grantee <> function.owner
  AND NOT EXISTS (
      SELECT FROM pg_class AS class
      WHERE class.relname = 'jobs' AND class.relnamespace = to_regnamespace('pulse')
        AND has_table_privilege(role.oid, class.oid, 'DELETE')
  )
GROUP BY function.right, role.oid, role.rolname
ORDER BY function.right, role.rolname;
