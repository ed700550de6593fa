-- The outbox of pulse, for an application whose tables are in another database than pulsed. Run it in the database of the
-- application, PostgreSQL 13 or newer, as the role that shall own it. It may be run again: it changes no stored job.
-- The functions have the parameters of pulse.enqueue, pulse.enqueue_json and pulse.enqueue_many.

CREATE SCHEMA IF NOT EXISTS pulse_outbox;

-- Jobs on their way to pulsed. `pulse outbox relay` deletes a job once pulsed has stored it. The checks refuse values
-- that a relay could not read or send. pulsed has the other checks.
CREATE TABLE IF NOT EXISTS pulse_outbox.jobs (
    -- About the order of the calls. A transaction that commits late has a low one.
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The id of the job in pulsed: a job that is submitted again is found by it.
    id uuid NOT NULL,
    topic text NOT NULL CHECK (length(topic) BETWEEN 1 AND 255),
    payload bytea NOT NULL CHECK (octet_length(payload) <= 1048576),
    priority integer NOT NULL,
    run_at timestamptz CHECK (run_at BETWEEN '1970-01-01 UTC' AND '9999-01-01 UTC'),
    max_attempts integer,
    start_within interval CHECK (start_within > '0' AND start_within <= '3650 days'),
    lane text CHECK (length(lane) <= 255),
    key text CHECK (length(key) <= 255),
    metadata jsonb CHECK (jsonb_typeof(metadata) = 'object' AND octet_length(metadata::text) <= 65536),
    unique_key text CHECK (length(unique_key) <= 255),
    unique_scope text NOT NULL,
    on_conflict text NOT NULL,
    period interval CHECK (period > '0' AND period <= '366 days'),
    longest interval CHECK (longest > '0' AND longest <= '366 days'),
    default_attempts integer,
    stored_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Set: pulsed refused the job for good. It stays until an operator retries or deletes it.
    refused_at timestamptz,
    refusal text
-- Every row is deleted soon. Vacuum has to keep up, or relays would walk over the dead ones.
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

CREATE INDEX IF NOT EXISTS jobs_waiting ON pulse_outbox.jobs (number) WHERE refused_at IS NULL;
CREATE INDEX IF NOT EXISTS jobs_refused ON pulse_outbox.jobs (number) WHERE refused_at IS NOT NULL;

-- A UUID of version 7, in any version of PostgreSQL: the milliseconds over the first six bytes of a random one, and the
-- bits that make its version 7.
CREATE OR REPLACE FUNCTION pulse_outbox.new_id() RETURNS uuid
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT encode(
        set_bit(set_bit(overlay(
            uuid_send(gen_random_uuid())
            PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6
        ), 52, 1), 53, 1),
        'hex'
    )::uuid
$$;

-- Store a job for the relay. It is submitted once the transaction is committed.
-- `duplicate` and `replaced` are always false here: only pulsed knows.
CREATE OR REPLACE FUNCTION pulse_outbox.enqueue(
    topic text, payload bytea, priority integer DEFAULT 0, run_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL,
    max_attempts integer DEFAULT NULL, start_within interval DEFAULT NULL, lane text DEFAULT NULL, key text DEFAULT NULL,
    metadata jsonb DEFAULT NULL, id uuid DEFAULT NULL, unique_key text DEFAULT NULL, unique_scope text DEFAULT 'waiting',
    on_conflict text DEFAULT 'skip', period interval DEFAULT NULL, longest interval DEFAULT NULL,
    default_attempts integer DEFAULT NULL, OUT job_id uuid, OUT duplicate boolean, OUT replaced boolean
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    due timestamptz := run_at;
BEGIN
    IF run_at IS NOT NULL AND delay IS NOT NULL THEN
        RAISE EXCEPTION 'delay cannot be given together with run_at.' USING ERRCODE = '22023';
    END IF;
    IF delay NOT BETWEEN interval '0' AND interval '3650 days' THEN
        RAISE EXCEPTION 'delay is %: it must be from 0 to 3650 days.', delay USING ERRCODE = '22023';
    END IF;
    -- Both are counted from this call, however long the job waits for a relay. A debounce sets its own start.
    IF delay IS NOT NULL OR (start_within IS NOT NULL AND run_at IS NULL AND on_conflict <> 'debounce') THEN
        due := clock_timestamp() + COALESCE(delay, interval '0');
    END IF;
    job_id := COALESCE(id, pulse_outbox.new_id());
    duplicate := false;
    replaced := false;
    INSERT INTO pulse_outbox.jobs (
        id, topic, payload, priority, run_at, max_attempts, start_within, lane, key, metadata,
        unique_key, unique_scope, on_conflict, period, longest, default_attempts
    ) VALUES (
        job_id, topic, payload, COALESCE(priority, 0), due, max_attempts, start_within, NULLIF(lane, ''), NULLIF(key, ''),
        metadata, unique_key, COALESCE(unique_scope, 'waiting'), COALESCE(on_conflict, 'skip'), period, longest, default_attempts
    );
END
$$;

-- As enqueue. The payload is the text of the arguments.
CREATE OR REPLACE FUNCTION pulse_outbox.enqueue_json(
    topic text, args jsonb, priority integer DEFAULT 0, run_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL,
    max_attempts integer DEFAULT NULL, start_within interval DEFAULT NULL, lane text DEFAULT NULL, key text DEFAULT NULL,
    metadata jsonb DEFAULT NULL, id uuid DEFAULT NULL, unique_key text DEFAULT NULL, unique_scope text DEFAULT 'waiting',
    on_conflict text DEFAULT 'skip', period interval DEFAULT NULL, longest interval DEFAULT NULL,
    default_attempts integer DEFAULT NULL, OUT job_id uuid, OUT duplicate boolean, OUT replaced boolean
) LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM pulse_outbox.enqueue(
        topic, convert_to(args::text, 'UTF8'), priority, run_at, delay, max_attempts, start_within, lane, key,
        metadata, id, unique_key, unique_scope, on_conflict, period, longest, default_attempts
    )
$$;

-- Store a job for each payload. Returns their ids in the same order.
CREATE OR REPLACE FUNCTION pulse_outbox.enqueue_many(
    topic text, payloads bytea[], priority integer DEFAULT 0, run_at timestamptz DEFAULT NULL,
    delay interval DEFAULT NULL, max_attempts integer DEFAULT NULL, start_within interval DEFAULT NULL,
    lane text DEFAULT NULL, metadata jsonb DEFAULT NULL, default_attempts integer DEFAULT NULL,
    keys text[] DEFAULT NULL, lanes text[] DEFAULT NULL
) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- A missing entry would be a job without its key.
    IF cardinality(keys) <> COALESCE(cardinality(payloads), 0) OR cardinality(lanes) <> COALESCE(cardinality(payloads), 0) THEN
        RAISE EXCEPTION 'keys and lanes need an entry for each of the % payloads.', COALESCE(cardinality(payloads), 0)
            USING ERRCODE = '22023';
    END IF;
    RETURN (SELECT COALESCE(array_agg(stored.job_id ORDER BY item.position), '{}')
    FROM unnest(payloads, keys, lanes) WITH ORDINALITY AS item (payload, key, lane, position),
    LATERAL pulse_outbox.enqueue(
        topic => enqueue_many.topic, payload => item.payload, priority => enqueue_many.priority,
        run_at => enqueue_many.run_at, delay => enqueue_many.delay, max_attempts => enqueue_many.max_attempts,
        start_within => enqueue_many.start_within, lane => COALESCE(item.lane, enqueue_many.lane), key => item.key,
        metadata => enqueue_many.metadata, default_attempts => enqueue_many.default_attempts
    ) AS stored);
END
$$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA pulse_outbox FROM PUBLIC;
