-- Makes the missing partitions for `days` days, starting at `from_day`, in UTC. Returns the new
-- days. A day that already has jobs in the DEFAULT partition stays there. Runs in one session at a
-- time; another session does nothing, and gets NULL.
CREATE OR REPLACE FUNCTION pulse.add_completed_days_v1(from_day date, days integer)
RETURNS date[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
    day  date;
    name text;
    privilege record;
    made date[] := '{}';
BEGIN
    IF days NOT BETWEEN 0 AND 10 THEN
        RETURN made;
    ELSIF NOT pulse.try_lock_v1('completed_days') THEN
        RETURN NULL;
    END IF;
    FOR day IN SELECT from_day + ahead FROM generate_series(0, days - 1) AS ahead LOOP
        name := 'completed_jobs_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass('pulse.' || name) IS NOT NULL;
        -- Attaching would read the whole DEFAULT partition under a lock that every completion waits for, only to fail.
        CONTINUE WHEN EXISTS (
            SELECT
            FROM pulse.completed_jobs_default AS job
            WHERE job.finished_at >= day::timestamp AT TIME ZONE 'UTC'
              AND job.finished_at < (day + 1)::timestamp AT TIME ZONE 'UTC'
        );
        BEGIN
            -- Attached, not made as a partition: that would lock the whole table against completions.
            EXECUTE format('CREATE TABLE pulse.%I (LIKE pulse.completed_jobs_by_day INCLUDING DEFAULTS)', name);
            EXECUTE format('ALTER TABLE pulse.%I REPLICA IDENTITY FULL', name);
            EXECUTE format(
                'ALTER TABLE pulse.completed_jobs_by_day ATTACH PARTITION pulse.%I FOR VALUES FROM (%L) TO (%L)',
                name, day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
            -- Roles that may use the existing partitions may use this one.
            FOR privilege IN
                SELECT granted.privilege_type AS kind,
                       CASE granted.grantee WHEN 0 THEN 'PUBLIC' ELSE granted.grantee::regrole::text END AS role
                FROM pg_class AS class, aclexplode(class.relacl) AS granted
                WHERE class.oid = 'pulse.completed_jobs_by_day'::regclass AND granted.grantee <> class.relowner
            LOOP
                EXECUTE format('GRANT %s ON pulse.%I TO %s', privilege.kind, name, privilege.role);
            END LOOP;
            made := made || day;
        EXCEPTION WHEN check_violation THEN
            NULL;
        END;
    END LOOP;
    RETURN made;
END $$;
REVOKE EXECUTE ON FUNCTION pulse.add_completed_days_v1 FROM PUBLIC;
