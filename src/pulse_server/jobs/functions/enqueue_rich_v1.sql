-- The rest of enqueue, for a job with a lane, a key, a unique key or an id of its own. With the
-- planner settings of the servers' sessions, which that of an application does not have: without
-- them a look for a key takes four times as long. ADR-0075
-- The job enters its lane with a notice,
-- as in insert_rich_jobs; the pool is not locked. A job that holds the unique key is waited
-- for: the caller does not try again later. With `skip` it is neither changed nor locked: it may
-- start, end and be changed before this transaction is committed. enqueue_again_v1 calls this once
-- more then (at_commit), which keeps it from starting until the commit is made. ADR-0066
CREATE OR REPLACE FUNCTION pulse.enqueue_rich_v1(
    id uuid, topic text, payload bytea, priority integer, max_attempts integer, idempotency_key text, metadata jsonb,
    run_at timestamptz, delay interval, start_within interval, lane text, unique_key text, unique_scope text, mode text,
    period interval, longest interval, id_is_given boolean, at_commit boolean, OUT job_id uuid, OUT duplicate boolean, OUT replaced boolean
) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    since     constant timestamptz := CASE WHEN substr(id::text, 15, 1) = '7' THEN {stamp_of_id} - interval '1 hour' END;
    began_at  constant timestamptz := clock_timestamp();
    stored    record;
    known     record;
    completed record;
BEGIN
    duplicate := false;
    replaced := false;
    FOR round IN 1..20 LOOP
        IF period IS NOT NULL AND mode = 'throttle' THEN
            SELECT last.job_id INTO known
            FROM pulse.unique_periods AS last
            WHERE last.topic = enqueue_rich_v1.topic AND last.key = enqueue_rich_v1.unique_key
              AND last.until > clock_timestamp();
            IF FOUND THEN
                job_id := known.job_id;
                duplicate := true;
                RETURN;
            END IF;
        END IF;
        WITH new AS (
            SELECT {variable_job}
        )
        {insert_of_new_in_lanes}
        ON CONFLICT DO NOTHING
        RETURNING tier, queued INTO stored;
        IF FOUND THEN
            -- The second look, by a snapshot of its own: the insert may have waited for a completion.
            SELECT * INTO known FROM pulse.find_completed_v1(
                CASE WHEN id_is_given THEN id END, topic, idempotency_key, payload, unique_key, since);
            IF known.known_id IS NOT NULL THEN
                DELETE FROM pulse.jobs AS job WHERE job.id = enqueue_rich_v1.id;
            ELSIF mode = 'throttle' AND unique_key IS NOT NULL AND cardinality(pulse.throttled_among_v1(
                ARRAY[id], ARRAY[topic], ARRAY[unique_key], ARRAY[period])) > 0
            THEN
                CONTINUE;
            ELSE
                IF stored.tier IS NOT NULL THEN
                    INSERT INTO pulse.limit_notices (pool, topic, lanes, ended)
                    SELECT policy.pool, policy.topic, ARRAY[enqueue_rich_v1.lane], 0
                    FROM pulse.limit_policies AS policy
                    WHERE policy.topic = enqueue_rich_v1.topic;
                END IF;
                INSERT INTO pulse.arrivals (oldest, priority, jobs, topic, ids)
                VALUES (began_at, CASE WHEN stored.queued THEN priority END, 1, topic, ARRAY[id]);
                job_id := id;
                RETURN;
            END IF;
        ELSE
            SELECT known.id AS known_id, {repeats_submit} AND count(*) OVER () = 1 AS is_same, known.id = new.id AS has_id INTO known
            FROM (SELECT {variable_job}) AS new
            JOIN pulse.jobs AS known
                ON (id_is_given AND known.id = new.id)
                OR (known.topic = new.topic AND known.idempotency_key = new.idempotency_key)
            ORDER BY has_id
            LIMIT 1;
            SELECT * INTO completed FROM pulse.find_completed_v1(
                CASE WHEN id_is_given THEN id END, topic, idempotency_key, payload, unique_key, since);
            IF known.known_id IS NULL THEN
                known := completed;
            ELSIF completed.known_id IS NOT NULL THEN
                known.is_same := false;  -- its id belongs to one job, and its key to another
            END IF;
        END IF;
        IF known.known_id IS NOT NULL THEN
            IF NOT known.is_same AND NOT at_commit THEN  -- what was a duplicate fails no commit
                RAISE EXCEPTION USING ERRCODE = 'unique_violation', DETAIL = known.known_id::text, MESSAGE = format(
                    '%s is already used by job %s, which has another topic or payload.',
                    CASE WHEN known.has_id THEN 'The id' ELSE format('The key %L', idempotency_key) END, known.known_id);
            END IF;
            job_id := known.known_id;
            duplicate := true;
            RETURN;
        END IF;
        IF mode = 'skip' THEN
            SELECT job.id, job.status = 'PENDING' AS waits INTO known
            FROM (SELECT {variable_job}) AS new
            JOIN pulse.jobs AS job ON {holds_unique_key};
            CONTINUE WHEN NOT FOUND;
            IF known.waits AND at_commit THEN
                -- Other commits of the key pass; a claim does not. The conditions are rechecked behind a wait.
                PERFORM
                FROM (SELECT {variable_job}) AS new
                JOIN pulse.jobs AS job ON {holds_unique_key}
                WHERE job.status = 'PENDING'
                FOR SHARE OF job;
                CONTINUE WHEN NOT FOUND;
            ELSIF known.waits THEN
                INSERT INTO pulse.open_duplicates (id, id_is_given, topic, payload, priority, max_attempts, idempotency_key,
                    metadata, run_at, start_within, lane, unique_key, unique_scope)
                SELECT new.id, id_is_given, new.topic, new.payload, new.priority, new.max_attempts, new.idempotency_key,
                    new.metadata::jsonb, COALESCE(new.run_at, clock_timestamp() + new.delay), new.start_within, new.lane,
                    new.unique_key, new.unique_scope
                FROM (SELECT {variable_job}) AS new
                -- Of several submits of this transaction the first one counts.
                WHERE NOT EXISTS (
                    SELECT
                    FROM pulse.open_duplicates AS known
                    WHERE known.topic = new.topic AND known.unique_key = new.unique_key AND known.unique_scope = new.unique_scope
                );
            END IF;
            IF known.waits OR unique_scope = 'live' THEN
                job_id := known.id;
                duplicate := true;
                RETURN;
            END IF;
        END IF;
        SELECT job.id, job.status = 'PENDING' AS waits, job.submitted_at INTO known
        FROM (SELECT {variable_job}) AS new
        JOIN pulse.jobs AS job ON {holds_unique_key}
        FOR NO KEY UPDATE OF job;
        CONTINUE WHEN NOT FOUND;
        IF unique_scope = 'waiting' AND NOT known.waits THEN
            UPDATE pulse.jobs AS job SET unique_scope = NULL WHERE job.id = known.id;  -- it has started: its key is free
            CONTINUE;
        END IF;
        IF mode IN ('replace', 'debounce') THEN
            UPDATE pulse.jobs AS job
            SET {replaced_by_new}
            FROM (SELECT {variable_job}, longest AS longest) AS new
            WHERE job.id = known.id;
            -- Claims may have passed the row while it was locked: floors must come down to it. An operator may
            -- have submitted the job: servers log the role, and count it in the audit.
            INSERT INTO pulse.arrivals (oldest, priority, jobs, topic, replaced_by, ids)
            VALUES (known.submitted_at, priority, 0, topic, session_user, ARRAY[known.id]);
            replaced := true;
        END IF;
        job_id := known.id;
        duplicate := true;
        RETURN;
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = 'lock_not_available', MESSAGE = format(
        'The job that holds the key %L of topic %s kept coming and going. Try again.', COALESCE(unique_key, idempotency_key), topic);
END $$;
