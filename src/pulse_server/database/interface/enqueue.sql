-- Stores a job in the transaction of the caller: it exists once that commits. Returns its id; or,
-- as a duplicate, that of the job that has its key. docs/reference/sql.md describes the interface.
-- ADR-0075
-- A plain job has an id that was made here, so it can be no repeat: no conflict is looked
-- for, and no completed job.
CREATE OR REPLACE FUNCTION pulse.enqueue(
    topic text, payload bytea, priority integer DEFAULT 0, run_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL,
    max_attempts integer DEFAULT NULL, start_within interval DEFAULT NULL, lane text DEFAULT NULL, key text DEFAULT NULL,
    metadata jsonb DEFAULT NULL, id uuid DEFAULT NULL, unique_key text DEFAULT NULL, unique_scope text DEFAULT 'waiting',
    on_conflict text DEFAULT 'skip', period interval DEFAULT NULL, longest interval DEFAULT NULL,
    default_attempts integer DEFAULT NULL, OUT job_id uuid, OUT duplicate boolean, OUT replaced boolean
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    idempotency_key constant text := NULLIF(key, '');
    id_is_given     constant boolean := id IS NOT NULL;
    began_at        constant timestamptz := clock_timestamp();
    is_due          boolean;
BEGIN
    -- One look at a job that has nothing special, which is nearly every job. The long check finds the sentence.
    IF (topic ~ '^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,254}$' AND octet_length(payload) <= 1048576 AND priority IS NOT NULL
        AND num_nonnulls(run_at, delay, max_attempts, default_attempts, start_within, lane, key, metadata, id, unique_key,
                         period, longest) = 0) IS NOT TRUE
    THEN
        PERFORM pulse.check_new_job_v1(
            topic, octet_length(payload), priority, run_at, delay, max_attempts, default_attempts, start_within, lane, key,
            metadata, id, unique_key, unique_scope, on_conflict, period, longest);
        IF on_conflict = 'debounce' AND unique_key IS NOT NULL THEN
            delay := period;
            longest := COALESCE(longest, LEAST(period * 10, interval '366 days'));
        END IF;
        delay := NULLIF(delay, interval '0');
        lane := NULLIF(lane, '');
        metadata := NULLIF(metadata, '{}');
    END IF;
    IF max_attempts IS NULL THEN
        {attempts_by_policy};
    END IF;
    id := COALESCE(id, pulse.new_job_id_v1());
    IF num_nonnulls(idempotency_key, unique_key, lane) > 0 OR id_is_given THEN
        SELECT rich.job_id, rich.duplicate, rich.replaced INTO job_id, duplicate, replaced
        FROM pulse.enqueue_rich_v1(
            id, topic, payload, priority, max_attempts, idempotency_key, metadata, run_at, delay, start_within, lane,
            unique_key, CASE WHEN unique_key IS NOT NULL THEN unique_scope END,
            CASE WHEN unique_key IS NOT NULL THEN on_conflict END, period, longest, id_is_given, false) AS rich;
        RETURN;
    END IF;
    unique_scope := NULL;
    {insert_of_new} FROM (SELECT {variable_job}) AS new
    RETURNING queued INTO is_due;
    INSERT INTO pulse.arrivals (oldest, priority, jobs, topic, ids)
    VALUES (began_at, CASE WHEN is_due THEN priority END, 1, topic, ARRAY[id]);
    job_id := id;
    duplicate := false;
    replaced := false;
END $$;
REVOKE EXECUTE ON FUNCTION pulse.enqueue FROM PUBLIC;
