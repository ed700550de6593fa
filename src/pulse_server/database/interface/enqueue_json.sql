-- enqueue with arguments in JSON, as the SDK reads them. A name of its own: with two functions of
-- one name, a literal fits both.
CREATE OR REPLACE FUNCTION pulse.enqueue_json(
    topic text, args jsonb, priority integer DEFAULT 0, run_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL,
    max_attempts integer DEFAULT NULL, start_within interval DEFAULT NULL, lane text DEFAULT NULL, key text DEFAULT NULL,
    metadata jsonb DEFAULT NULL, id uuid DEFAULT NULL, unique_key text DEFAULT NULL, unique_scope text DEFAULT 'waiting',
    on_conflict text DEFAULT 'skip', period interval DEFAULT NULL, longest interval DEFAULT NULL,
    default_attempts integer DEFAULT NULL, OUT job_id uuid, OUT duplicate boolean, OUT replaced boolean
) LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM pulse.enqueue(
        topic, convert_to(args::text, 'UTF8'), priority, run_at, delay, max_attempts, start_within, lane, key, metadata, id,
        unique_key, unique_scope, on_conflict, period, longest, default_attempts)
$$;
REVOKE EXECUTE ON FUNCTION pulse.enqueue_json FROM PUBLIC;
