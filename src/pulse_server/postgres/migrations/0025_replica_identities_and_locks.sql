-- Replica identities, submits past locks, and search paths.

-- A publication for all tables refuses to delete rows of a table that has no replica identity. A key would cost every
-- claim an index entry. FULL costs nothing below wal_level = logical; there a deletion logs the row, 16 bytes a job.
ALTER TABLE pulse.lease_checks REPLICA IDENTITY FULL;

-- FULL, as lease_checks: a key would have to hold finished_at and kept too, and be one index more for each completion.
-- Days are dropped as a whole, so few rows are deleted one by one. A partition does not inherit it.
DO $$
DECLARE
    part regclass;
BEGIN
    FOR part IN SELECT tree.relid FROM pg_partition_tree('pulse.completed_jobs') AS tree LOOP
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', part);
    END LOOP;
END $$;

-- The second look of a statement that inserts jobs, called once after its last row: which of them are completed jobs,
-- submitted again? Returns their ids, and removes what the statement inserted for them.
--
-- An insert that meets a completion waits for it, and then finds pulse.jobs without the job. The snapshot of the insert
-- is older than that completion: in the same statement the job would be in neither table. Each query of a VOLATILE
-- function has a snapshot of its own, and sees every completion that the insert could have met.
--   keyed_ids: those with an idempotency key.
--   since: the completed jobs that have one of the ids finished at this moment or later; NULL: at any time. Only the
--   partitions from then on are read, to a day ahead, in case that the database's clock was set back. Jobs that are kept
--   for longer than their day finished before today.
-- The bounds are variables: a plan that is made for their values locks no other partition. One that is made for all values
-- locks each of them, which takes less time than to plan, and waits for a session that has locked one. ADR-0070
CREATE OR REPLACE FUNCTION pulse.completed_among(new_ids uuid[], keyed_ids uuid[], since timestamptz)
RETURNS uuid[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    first_at constant timestamptz := COALESCE(since, '-infinity');
    end_at   constant timestamptz := CASE WHEN since IS NULL THEN 'infinity' ELSE now() + interval '1 day' END;
    may_be_kept constant boolean := first_at < date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
    found_again uuid[];
BEGIN
    SELECT array_agg(done.id) INTO found_again
    FROM pulse.completed_jobs AS done
    WHERE done.id = ANY(new_ids)
      AND done.kept <= may_be_kept
      AND done.finished_at >= first_at
      AND done.finished_at < end_at;
    IF keyed_ids IS NOT NULL THEN
        SELECT found_again || array_agg(job.id) INTO found_again
        FROM pulse.jobs AS job
        JOIN pulse.completed_jobs AS done
            ON done.topic = job.topic AND done.idempotency_key = job.idempotency_key
        WHERE job.id = ANY(keyed_ids);
    END IF;
    IF found_again IS NOT NULL THEN
        WITH removed AS (
            DELETE FROM pulse.jobs AS job WHERE job.id = ANY(found_again) RETURNING job.id
        )
        SELECT array_agg(removed.id) INTO found_again FROM removed;
    END IF;
    RETURN found_again;
END $$;

-- Makes the partitions of so many days from one on, in UTC, that there are none for. Returns those that it made. A day
-- that has jobs in the DEFAULT partition already stays there. One session at a time; another does nothing.
CREATE OR REPLACE FUNCTION pulse.add_completed_days(from_day date, days integer)
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

-- For an insert that met a lock: what stands against each job. 'known': pulse.jobs has a job with its id or one of its keys. 'held':
-- a transaction that has not ended has written its id or one of its keys. NULL: nothing. To find this out, each job is inserted
-- and taken back. A wait takes 10 ms, and all of them together 100: past that, jobs with a key count as held. ADR-0070
CREATE FUNCTION pulse.obstacles_to(
    new_ids uuid[], new_topics text[], new_keys text[], unique_keys text[], unique_scopes text[]
) RETURNS text[] LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET lock_timeout = '10ms' AS $$
DECLARE
    new       record;
    waited    interval := '0';
    began_at  timestamptz;
    obstacles text[] := array_fill(NULL::text, ARRAY[cardinality(new_ids)]);
BEGIN
    FOR new IN
        SELECT given.*
        FROM unnest(new_ids, new_topics, new_keys, unique_keys, unique_scopes)
            WITH ORDINALITY AS given (id, topic, key, unique_key, unique_scope, place)
    LOOP
        IF EXISTS (SELECT FROM pulse.jobs AS job WHERE job.id = new.id)
            OR EXISTS (SELECT FROM pulse.jobs AS job WHERE job.topic = new.topic AND job.idempotency_key = new.key)
            OR EXISTS (
                SELECT
                FROM pulse.jobs AS job
                WHERE job.topic = new.topic AND job.unique_key = new.unique_key AND job.unique_scope = new.unique_scope
                  AND job.finished_at IS NULL
            )
        THEN
            obstacles[new.place] := 'known';
            CONTINUE;
        ELSIF waited >= interval '100 ms' AND COALESCE(new.key, new.unique_key) IS NOT NULL THEN
            obstacles[new.place] := 'held';
            CONTINUE;
        END IF;
        began_at := clock_timestamp();
        BEGIN
            INSERT INTO pulse.jobs (id, topic, payload, priority, max_attempts, idempotency_key, submitted_at, next_run_at,
                                    queued, status, unique_key, unique_scope)
            VALUES (new.id, new.topic, '', 0, 1, new.key, began_at, began_at,
                    false, 'PENDING', new.unique_key, new.unique_scope)
            ON CONFLICT DO NOTHING;
            IF new.unique_key IS NOT NULL THEN  -- it may be throttled
                INSERT INTO pulse.unique_periods AS known (topic, key, until, job_id)
                VALUES (new.topic, new.unique_key, began_at, new.id)
                ON CONFLICT (topic, key) DO UPDATE SET until = known.until;
            END IF;
            RAISE EXCEPTION USING ERRCODE = 'PULSE';
        EXCEPTION
            WHEN SQLSTATE 'PULSE' THEN
                NULL;
            WHEN lock_not_available THEN
                obstacles[new.place] := 'held';
                waited := waited + (clock_timestamp() - began_at);
        END;
    END LOOP;
    RETURN obstacles;
END $$;

-- The functions of the schema look up names in pg_catalog alone, in whichever session they are called: another role may have
-- put an operator into public that fits better. SQL functions that name nothing of ours stay as they are. They compute a value
-- for each row, and one that has a setting is not inlined: 6 µs a row. Their names are looked up as those of the statement are.
DO $$
DECLARE
    function regprocedure;
BEGIN
    FOR function IN
        SELECT proc.oid
        FROM pg_proc AS proc
        JOIN pg_language AS language ON language.oid = proc.prolang
        WHERE proc.pronamespace = 'pulse'::regnamespace
          AND proc.proconfig IS NULL
          AND NOT (language.lanname = 'sql' AND proc.prosrc NOT LIKE '%pulse.%')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', function);
    END LOOP;
END $$;
-- The steps of a job as it keeps them once it is completed: without their values. ADR-0069
CREATE OR REPLACE FUNCTION pulse.timeline_of_v1(of_job uuid)
RETURNS jsonb LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
            'name', step.name, 'kind', step.kind, 'attempt', step.attempt,
            'started_at', step.started_at, 'stored_at', step.stored_at, 'until', step.until,
            'signal', step.signal_id, 'bytes', octet_length(step.value))) ORDER BY step.position, step.name)
        FROM pulse.job_steps AS step
        WHERE step.job_id = of_job
    );
END $$;

-- Deletes the steps and signals of jobs that have left pulse.jobs. A statement that still reads them has its own snapshot.
CREATE OR REPLACE FUNCTION pulse.forget_steps_v1(of_jobs uuid[])
RETURNS boolean LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM pulse.job_steps AS step WHERE step.job_id = ANY(of_jobs);
    DELETE FROM pulse.job_signals AS signal WHERE signal.job_id = ANY(of_jobs);
    RETURN true;
END $$;

-- Lets the next claim know of runs of a topic that have completed: the turnstile of each, and the lane that it held, or null.
-- ADR-0064
CREATE OR REPLACE FUNCTION pulse.runs_completed_v1(of_topic text, turnstiles text[], lanes text[])
RETURNS bigint LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    runs bigint;
BEGIN
    WITH ended AS MATERIALIZED (
        SELECT NULL::uuid AS id, of_topic AS topic, 'COMPLETED' AS status, run.turnstile, run.lane_held
        FROM unnest(turnstiles, lanes) AS run (turnstile, lane_held)
    ),
    noticed AS (
    INSERT INTO pulse.flow_notices (turnstile, topic, ended)
    SELECT ended.turnstile, ended.topic, count(*)
    FROM ended
    WHERE ended.turnstile IS NOT NULL
    GROUP BY ended.turnstile, ended.topic
),
lined AS (
    INSERT INTO pulse.lane_line (topic, lanes, places, job_id)
    SELECT freed.topic, array_agg(freed.lane), freed.places, freed.job_id
    FROM (
        SELECT
            ended.topic, ended.lane_held AS lane, count(*) AS places, row_number() OVER () AS number,
            CASE WHEN ended.status = 'RETRYING' THEN ended.id END AS job_id
        FROM ended
        WHERE ended.lane_held IS NOT NULL
        GROUP BY ended.topic, ended.lane_held, CASE WHEN ended.status = 'RETRYING' THEN ended.id END
    ) AS freed
    GROUP BY freed.topic, freed.places, freed.job_id, freed.number / 64
)
    SELECT count(*) INTO runs FROM ended;
    RETURN runs;
END $$;

