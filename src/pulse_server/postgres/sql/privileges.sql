-- The missing GRANTs of this role, as a DBA would run them. No row: none is missing.

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
