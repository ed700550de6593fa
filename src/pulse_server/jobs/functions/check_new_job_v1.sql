-- The checks of a submit, with the sentences of base/bounds.py and jobs/new_jobs.py. A test gives
-- one table of bad inputs to both. An empty text is one that was not given, as in the RPC.
CREATE OR REPLACE FUNCTION pulse.check_new_job_v1(
    topic text, payload_bytes bigint, priority integer, run_at timestamptz, delay interval, max_attempts integer,
    default_attempts integer, start_within interval, lane text, key text, metadata jsonb, id uuid, unique_key text,
    unique_scope text, on_conflict text, period interval, longest interval
) RETURNS void LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most_days constant interval := interval '3650 days';
    bytes     bigint;
    entries   bigint;
BEGIN
    IF COALESCE(topic, '') = '' THEN
        PERFORM pulse.refuse_v1('topic', 'is empty: name the kind of work, such as ''send-email''.');
    ELSIF length(topic) > 255 THEN
        PERFORM pulse.refuse_v1('topic', format('has %s characters; 255 are allowed at the most.', length(topic)));
    ELSIF topic !~ '^[A-Za-z0-9][A-Za-z0-9_.:/-]*$' THEN
        PERFORM pulse.refuse_v1('topic', format(
            '%L is not allowed: use letters, digits and . _ - : / and start with a letter or digit.', topic));
    END IF;
    IF payload_bytes IS NULL THEN
        PERFORM pulse.refuse_v1('payload', 'is NULL: give the bytes that the handler reads.');
    ELSIF payload_bytes > 1048576 THEN
        PERFORM pulse.refuse_v1('payload', format(
            'has %s bytes; 1048576 are allowed at the most. Store large data elsewhere and send a reference to it.',
            payload_bytes));
    END IF;
    IF priority IS NULL THEN
        PERFORM pulse.refuse_v1('priority', 'is NULL: give a number, or leave it out.');
    END IF;
    IF run_at IS NOT NULL AND delay IS NOT NULL THEN
        PERFORM pulse.refuse_v1('delay', 'and run_at are both given: give one of them.');
    END IF;
    IF run_at NOT BETWEEN timestamptz '1970-01-01 00:00+00' AND timestamptz '2200-01-01 00:00+00' THEN
        PERFORM pulse.refuse_v1('run_at', 'must lie between the years 1970 and 2200.');
    END IF;
    IF delay < interval '0' THEN
        PERFORM pulse.refuse_v1('delay', 'is negative: time runs forward only.');
    ELSIF delay > most_days THEN
        PERFORM pulse.refuse_v1('delay', 'is longer than 3650 days.');
    END IF;
    IF start_within <= interval '0' THEN
        PERFORM pulse.refuse_v1('start_within', 'must be above zero.');
    ELSIF start_within > most_days THEN
        PERFORM pulse.refuse_v1('start_within', 'is longer than 3650 days.');
    END IF;
    IF max_attempts NOT BETWEEN 1 AND 1000 THEN
        PERFORM pulse.refuse_v1('max_attempts', format('is %s: it must be from 1 to 1000.', max_attempts));
    ELSIF default_attempts NOT BETWEEN 1 AND 1000 THEN
        PERFORM pulse.refuse_v1('default_attempts', format('is %s: it must be from 1 to 1000.', default_attempts));
    END IF;
    IF length(lane) > 255 THEN
        PERFORM pulse.refuse_v1('lane', format('has %s characters; 255 are allowed at the most.', length(lane)));
    END IF;
    IF length(key) > 255 THEN
        PERFORM pulse.refuse_v1('key', format('has %s characters; 255 are allowed at the most.', length(key)));
    END IF;
    IF substr(id::text, 15, 1) = '5' THEN
        PERFORM pulse.refuse_v1('id', 'is a UUID of version 5, and those belong to the fires of schedules. Take version 7 or '
            '4; for a job that must be stored once under a name of yours, give a key.');
    END IF;
    IF metadata IS NOT NULL THEN
        IF jsonb_typeof(metadata) <> 'object'
            OR EXISTS (SELECT FROM jsonb_each(metadata) AS entry WHERE jsonb_typeof(entry.value) <> 'string')
        THEN
            PERFORM pulse.refuse_v1('metadata', 'must be an object whose values are texts.');
        END IF;
        SELECT sum(octet_length(entry.key) + octet_length(entry.value)), count(*) INTO bytes, entries
        FROM jsonb_each_text(metadata) AS entry;
        IF entries > 64 THEN
            PERFORM pulse.refuse_v1('metadata', format('has %s entries; 64 are allowed at the most.', entries));
        ELSIF bytes > 16384 THEN
            PERFORM pulse.refuse_v1('metadata', format('has %s bytes; 16384 are allowed at the most.', bytes));
        END IF;
    END IF;
    IF unique_key IS NOT NULL THEN
        PERFORM pulse.check_unique_v1(unique_key, unique_scope, on_conflict, period, longest, run_at, delay);
    ELSIF num_nonnulls(period, longest) > 0 THEN
        PERFORM pulse.refuse_v1('period', 'and longest belong to a unique_key, which is not given.');
    END IF;
    -- A look for a completed job with the snapshot of an earlier moment misses what completed since.
    IF (key <> '' OR num_nonnulls(id, unique_key) > 0) AND current_setting('transaction_isolation') NOT LIKE 'read%' THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE = format(
            'A job with a key, a unique_key or an id of its own cannot be stored in a transaction at %s: a job that has '
            'completed since it began would be stored again. Use READ COMMITTED.',
            upper(current_setting('transaction_isolation')));
    END IF;
END $$;
