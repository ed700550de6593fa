-- enqueue for many jobs that share their options. Returns their ids in the order of the payloads;
-- of a duplicate that of the job that has its key. Jobs with keys are stored in the order of the
-- keys: two calls cannot wait for each other.
CREATE OR REPLACE FUNCTION pulse.enqueue_many(
    topic text, payloads bytea[], priority integer DEFAULT 0, run_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL,
    max_attempts integer DEFAULT NULL, start_within interval DEFAULT NULL, lane text DEFAULT NULL, metadata jsonb DEFAULT NULL,
    default_attempts integer DEFAULT NULL, keys text[] DEFAULT NULL, lanes text[] DEFAULT NULL
) RETURNS uuid[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    schedule_id     constant uuid := NULL;
    idempotency_key constant text := NULL;
    unique_key      constant text := NULL;
    unique_scope    constant text := NULL;
    size            constant integer := COALESCE(cardinality(payloads), 0);
    began_at        constant timestamptz := clock_timestamp();
    ids             uuid[];
    due             integer;
    one             record;
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
            ids[one.place] := (pulse.enqueue(
                topic, one.payload, priority, run_at, delay, max_attempts, start_within, COALESCE(one.lane, lane), one.key,
                metadata)).job_id;
        END LOOP;
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
    VALUES (began_at, CASE WHEN due > 0 THEN priority END, size, topic, ids[1:1000]);
    RETURN ids;
END $$;
REVOKE EXECUTE ON FUNCTION pulse.enqueue_many FROM PUBLIC;
