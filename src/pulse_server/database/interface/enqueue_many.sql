-- enqueue for many jobs that share their options. Returns their ids in the order of the payloads;
-- of a duplicate that of the job that has its key. Jobs with keys are stored in the order of the
-- keys: two calls cannot wait for each other. Then they get the times of the order of the payloads.
-- With the planner settings of the servers' sessions, as enqueue_rich: with the defaults the last
-- update may read all jobs.
CREATE OR REPLACE FUNCTION pulse.enqueue_many(
    topic text, payloads bytea[], priority integer DEFAULT 0, run_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL,
    max_attempts integer DEFAULT NULL, start_within interval DEFAULT NULL, lane text DEFAULT NULL, metadata jsonb DEFAULT NULL,
    default_attempts integer DEFAULT NULL, keys text[] DEFAULT NULL, lanes text[] DEFAULT NULL
) RETURNS uuid[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    idempotency_key constant text := NULL;
    unique_key      constant text := NULL;
    unique_scope    constant text := NULL;
    size            constant integer := COALESCE(cardinality(payloads), 0);
    began_at        constant timestamptz := clock_timestamp();
    ids             uuid[];
    due             integer;
    one             record;
    stored          record;
    fresh           uuid[] := '{}';
    places          bigint[] := '{}';   -- of the fresh jobs
    times           timestamptz[];
BEGIN
    IF size > 10000 THEN
        PERFORM pulse.refuse_v1('payloads', format('has %s entries; 10000 are allowed at the most.', size));
    ELSIF cardinality(keys) <> size OR cardinality(lanes) <> size THEN
        PERFORM pulse.refuse_v1('keys', format('and lanes need an entry for each of the %s payloads.', size));
    END IF;
    PERFORM pulse.check_new_job_v1(
        topic, CASE WHEN array_position(payloads, NULL) IS NULL
            THEN COALESCE((SELECT max(octet_length(payload)) FROM unnest(payloads) AS payload), 0) END,
        priority, run_at, delay, max_attempts, default_attempts, start_within, lane, NULL, metadata, NULL, NULL, NULL, NULL, NULL,
        NULL);
    IF size = 0 THEN
        RETURN '{}';
    END IF;
    IF max_attempts IS NULL THEN
        {attempts_by_policy};
    END IF;
    IF keys IS NOT NULL OR lanes IS NOT NULL OR lane <> '' THEN
        ids := array_fill(NULL::uuid, ARRAY[size]);
        FOR one IN
            SELECT given.*
            FROM unnest(payloads, keys, lanes) WITH ORDINALITY AS given (payload, key, lane, place)
            ORDER BY given.key, given.place
        LOOP
            SELECT * INTO stored FROM pulse.enqueue(
                topic, one.payload, priority, run_at, delay, max_attempts, start_within, COALESCE(one.lane, lane), one.key,
                metadata);
            ids[one.place] := stored.job_id;
            IF NOT stored.duplicate THEN
                fresh := fresh || stored.job_id;
                places := places || one.place;
            END IF;
        END LOOP;
        IF keys IS NOT NULL AND cardinality(fresh) > 1 THEN
            times := ARRAY(SELECT job.submitted_at FROM pulse.jobs AS job WHERE job.id = ANY(fresh) ORDER BY job.submitted_at);
            fresh := ARRAY(SELECT given.id FROM unnest(fresh, places) AS given (id, place) ORDER BY given.place);
            UPDATE pulse.jobs AS job
            SET submitted_at = given.submitted_at, rank_at = job.rank_at + (given.submitted_at - job.submitted_at)
            FROM unnest(fresh, times) AS given (id, submitted_at)
            WHERE job.id = ANY(ARRAY[given.id]) AND job.submitted_at <> given.submitted_at;
            -- A job may be older now than the row of its own call: floors come down to the oldest.
            INSERT INTO pulse.arrivals (oldest, priority, jobs, topic) VALUES (began_at, priority, 0, topic);
        END IF;
        RETURN ids;
    END IF;
    delay := NULLIF(delay, interval '0');
    lane := NULL;
    metadata := NULLIF(metadata, '{}');
    ids := ARRAY(SELECT pulse.new_job_id_v1() FROM generate_series(1, size));
    WITH stored AS (
        {insert_of_new}
        FROM unnest(ids, payloads) AS given (id, payload)
        CROSS JOIN LATERAL (SELECT {variable_job}) AS new
        RETURNING queued
    )
    SELECT count(*) FILTER (WHERE stored.queued) INTO due FROM stored;
    INSERT INTO pulse.arrivals (oldest, priority, jobs, topic, ids)
    VALUES (began_at, CASE WHEN due > 0 THEN priority END, size, topic, ids[1:100]);
    RETURN ids;
END $$;
REVOKE EXECUTE ON FUNCTION pulse.enqueue_many FROM PUBLIC;
