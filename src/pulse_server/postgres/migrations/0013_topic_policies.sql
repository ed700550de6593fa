-- Policies of topics: what an operator has set for the jobs of one topic. A column that is NULL says nothing, and the
-- settings of the server hold. Forever is an interval of 365,000 days. ADR-0058
CREATE TABLE pulse.topic_policies (
    topic              text        NOT NULL,
    completed_kept     interval,
    canceled_kept      interval,
    dead_lettered_kept interval,
    set_by             text        NOT NULL DEFAULT '',
    set_at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT topic_policies_pkey PRIMARY KEY (topic),
    CONSTRAINT topic_policies_kept CHECK (
        LEAST(completed_kept, canceled_kept, dead_lettered_kept) >= interval '1 minute'
        AND GREATEST(completed_kept, canceled_kept, dead_lettered_kept) <= interval '365000 days'
    )
);

-- Days of completed jobs are made ahead and dropped by the servers. Only the owner of a table may do that, and a server may
-- have a role with less: the functions act for the owner. Their lock_timeout is below the time that a completion waits for a
-- lock: while one of them waits, completions wait behind it. ADR-0058

-- Makes the partitions of so many days from one on, in UTC, that there are none for. Returns those that it made. A day
-- that has jobs in the DEFAULT partition already stays there. One session at a time; another does nothing.
CREATE FUNCTION pulse.add_completed_days(from_day date, days integer)
RETURNS date[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
    day  date;
    name text;
    privilege record;
    made date[] := '{}';
BEGIN
    IF days NOT BETWEEN 0 AND 10 OR NOT pg_try_advisory_xact_lock(482973020532) THEN
        RETURN made;
    END IF;
    FOR day IN SELECT from_day + ahead FROM generate_series(0, days - 1) AS ahead LOOP
        name := 'completed_jobs_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass('pulse.' || name) IS NOT NULL;
        BEGIN
            -- Attached, not made as a partition: that would lock the whole table against completions.
            EXECUTE format('CREATE TABLE pulse.%I (LIKE pulse.completed_jobs_by_day INCLUDING DEFAULTS)', name);
            EXECUTE format(
                'ALTER TABLE pulse.completed_jobs_by_day ATTACH PARTITION pulse.%I FOR VALUES FROM (%L) TO (%L)',
                name, day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
            -- Roles that may use the others may use this one.
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

-- Drops the partition of a day that is over, in UTC, with the jobs in it. Returns about how many these were; NULL if there
-- is no such partition, if another session is at it, or if the policy of a topic was set since that moment: jobs that it
-- keeps may be in there.
CREATE FUNCTION pulse.drop_completed_day(day date, unless_policy_since timestamptz)
RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
    name constant text := 'completed_jobs_' || to_char(day, 'YYYYMMDD');
    jobs bigint;
BEGIN
    IF (day + 1)::timestamp AT TIME ZONE 'UTC' > now() OR NOT pg_try_advisory_xact_lock(482973020532) THEN
        RETURN NULL;
    END IF;
    SELECT class.reltuples INTO jobs
    FROM pg_class AS class
    JOIN pg_inherits AS part ON part.inhrelid = class.oid
    WHERE part.inhparent = 'pulse.completed_jobs_by_day'::regclass AND class.relname = name;
    IF jobs IS NULL OR EXISTS (SELECT FROM pulse.topic_policies WHERE set_at > unless_policy_since) THEN
        RETURN NULL;
    END IF;
    IF jobs <= 0 THEN  -- never analyzed: it is small, or autovacuum is off
        EXECUTE format('SELECT count(*) FROM (SELECT FROM pulse.%I LIMIT 100000) AS found', name) INTO jobs;
    END IF;
    EXECUTE format('DROP TABLE pulse.%I', name);
    RETURN jobs;
END $$;

REVOKE EXECUTE ON FUNCTION pulse.add_completed_days(date, integer) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION pulse.drop_completed_day(date, timestamptz) FROM PUBLIC;

-- A role that serves without owning the schema needs both from now on.
DO $$
DECLARE
    server text;
BEGIN
    FOR server IN
        SELECT CASE granted.grantee WHEN 0 THEN 'PUBLIC' ELSE granted.grantee::regrole::text END
        FROM pg_class AS class, aclexplode(class.relacl) AS granted
        WHERE class.oid = 'pulse.jobs'::regclass
          AND granted.privilege_type = 'DELETE' AND granted.grantee <> class.relowner
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION pulse.add_completed_days(date, integer) TO %s', server);
        EXECUTE format('GRANT EXECUTE ON FUNCTION pulse.drop_completed_day(date, timestamptz) TO %s', server);
    END LOOP;
END $$;
