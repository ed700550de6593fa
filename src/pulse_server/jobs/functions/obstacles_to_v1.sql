-- For an insert that met a lock: the obstacle to each job. 'known': pulse.jobs has a job with its
-- id or one of its keys. 'held': an open transaction has written its id or one of its keys. NULL:
-- no obstacle. To find out, each job is inserted and taken back. Each wait takes up to 10 ms, and
-- all waits together 100 ms: past that, jobs with a key count as held. docs/figures.md#submits-past-locks
CREATE OR REPLACE FUNCTION pulse.obstacles_to_v1(
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
