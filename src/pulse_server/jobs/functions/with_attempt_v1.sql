-- The history with one more attempt. It keeps the newest 20, and 1,000 characters of each error: a
-- job that fails for weeks must not grow without bound. Written only on failure, so that success
-- costs nothing.
CREATE OR REPLACE FUNCTION pulse.with_attempt_v1(
    history jsonb, attempt integer, run integer, worker_id text, started_at timestamptz, outcome text, error text
) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN jsonb_array_length(history) >= 20 THEN history - 0 ELSE COALESCE(history, '[]') END
        || jsonb_build_array(jsonb_build_object(
            'attempt', attempt, 'run', run, 'worker', worker_id, 'started_at', started_at,
            'ended_at', clock_timestamp(), 'outcome', outcome, 'error', left(error, 1000)))
$$;
