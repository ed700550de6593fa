-- Stores a workflow in the transaction of its caller: all its jobs, or none. `jobs` is an array of
-- objects: name, topic, payload (JSON) or payload_base64, after (the names of jobs before it in the
-- array), when, priority, max_attempts, metadata, run_at, delay and start_within (in seconds), lane.
-- The id of the workflow may be given, so that the call can be repeated. ADR-0077
CREATE OR REPLACE FUNCTION pulse.enqueue_workflow(
    name text, jobs jsonb, id uuid DEFAULT NULL, OUT workflow_id uuid, OUT job_ids uuid[], OUT duplicate boolean
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    began_at   constant timestamptz := clock_timestamp();
    most       constant integer := (SELECT control.max_workflow_jobs FROM pulse.dispatch_control AS control WHERE control.id = 1);
    numbers    jsonb := '{}';
    definition jsonb;
    waits      bigint;
    wrong      text;
    stored     record;
BEGIN
    IF COALESCE(name, '') = '' OR length(name) > 255 THEN
        PERFORM pulse.refuse_v1('name', 'is needed, and has at most 255 characters: name the workflow, such as ''nightly''.');
    ELSIF jsonb_typeof(jobs) IS DISTINCT FROM 'array' OR jsonb_array_length(jobs) = 0 THEN
        PERFORM pulse.refuse_v1('jobs', 'must be an array of objects, with at least one.');
    ELSIF jsonb_array_length(jobs) > most THEN
        PERFORM pulse.refuse_v1('jobs', format(
            'of the workflow are more than %s. Split it, or raise PULSE_MAX_WORKFLOW_JOBS of pulsed.', most));
    ELSIF EXISTS (SELECT FROM jsonb_array_elements(jobs) AS given (job) WHERE jsonb_typeof(job) <> 'object') THEN
        PERFORM pulse.refuse_v1('jobs', 'must be an array of objects.');
    END IF;
    SELECT string_agg(DISTINCT key, ', ') INTO wrong
    FROM jsonb_array_elements(jobs) AS given (job), jsonb_object_keys(job) AS key
    WHERE key <> ALL('{name,topic,payload,payload_base64,after,when,priority,max_attempts,default_attempts,metadata,run_at,delay,start_within,lane}');
    IF wrong IS NOT NULL THEN
        PERFORM pulse.refuse_v1('jobs', format('have keys that are not known: %s.', wrong));
    END IF;
    SELECT jsonb_object_agg(named.name, named.number) INTO numbers
    FROM (
        SELECT COALESCE(job ->> 'name', '') AS name, number FROM jsonb_array_elements(jobs) WITH ORDINALITY AS given (job, number)
    ) AS named;
    IF numbers ? '' OR (SELECT count(*) FROM jsonb_object_keys(numbers)) < jsonb_array_length(jobs)
        OR EXISTS (SELECT FROM jsonb_object_keys(numbers) AS key WHERE length(key) > 255)
    THEN
        PERFORM pulse.refuse_v1('jobs', 'need names of at most 255 characters, and each name is for one job.');
    END IF;
    SELECT string_agg(DISTINCT quote_literal(job ->> 'name'), ', ') INTO wrong
    FROM jsonb_array_elements(jobs) AS given (job)
    WHERE jsonb_typeof(job -> 'after') <> 'array';
    IF wrong IS NOT NULL THEN
        PERFORM pulse.refuse_v1('after', format('of %s must be an array of names.', wrong));
    END IF;
    SELECT string_agg(DISTINCT quote_literal(parent.name), ', '), count(*) INTO wrong, waits
    FROM jsonb_array_elements(jobs) WITH ORDINALITY AS given (job, number), jsonb_array_elements_text(job -> 'after') AS parent (name)
    WHERE COALESCE((numbers ->> parent.name)::int, number) >= number;
    IF wrong IS NOT NULL THEN
        PERFORM pulse.refuse_v1('after', format('names %s, which is not among the jobs before it in the array.', wrong));
    END IF;
    SELECT count(*) INTO waits FROM jsonb_array_elements(jobs) AS given (job), jsonb_array_elements(job -> 'after');
    IF waits > 10 * most THEN
        PERFORM pulse.refuse_v1('after', format('has %s names in all; %s are allowed at the most.', waits, 10 * most));
    END IF;
    SELECT string_agg(DISTINCT quote_literal(job ->> 'when'), ', ') INTO wrong
    FROM jsonb_array_elements(jobs) AS given (job)
    WHERE job ->> 'when' NOT IN ('succeeded', 'failed', 'always');
    IF wrong IS NOT NULL THEN
        PERFORM pulse.refuse_v1('when', format('%s is none of succeeded, failed, always.', wrong));
    ELSIF EXISTS (
        SELECT FROM jsonb_array_elements(jobs) AS given (job)
        WHERE job ->> 'when' = 'failed' AND COALESCE(jsonb_array_length(job -> 'after'), 0) = 0
    ) THEN
        PERFORM pulse.refuse_v1('when', 'is ''failed'', but no job in `after` could fail.');
    END IF;
    PERFORM pulse.check_new_job_v1(
        given.topic, octet_length(COALESCE(decode(given.payload_base64, 'base64'), convert_to(given.payload::text, 'UTF8'), '')),
        COALESCE(given.priority, 0), given.run_at, given.delay * interval '1 second', given.max_attempts,
        given.default_attempts, given.start_within * interval '1 second', given.lane, NULL, given.metadata, NULL, NULL, NULL, NULL, NULL, NULL)
    FROM jsonb_to_recordset(jobs) AS given (
        topic text, payload jsonb, payload_base64 text, priority integer, max_attempts integer,
        default_attempts integer, metadata jsonb, run_at timestamptz, delay float8, start_within float8, lane text);
    SELECT jsonb_agg(
        (job - 'payload' - 'payload_base64') || jsonb_build_object(
            'payload', COALESCE(job ->> 'payload_base64', encode(convert_to(COALESCE((job -> 'payload')::text, ''), 'UTF8'), 'base64')),
            'after', (
                SELECT COALESCE(jsonb_agg(DISTINCT (numbers ->> parent.name)::int), '[]')
                FROM jsonb_array_elements_text(job -> 'after') AS parent (name)))
        ORDER BY number) INTO definition
    FROM jsonb_array_elements(jobs) WITH ORDINALITY AS given (job, number);
    workflow_id := COALESCE(id, gen_random_uuid());
    SELECT * INTO stored
    FROM pulse.store_workflow_v1(workflow_id, name, sha256(convert_to(name || E'\n' || definition::text, 'UTF8')), NULL, definition);
    IF stored.is_same IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = 'unique_violation', MESSAGE = format(
            'The id %s already belongs to another workflow. Use a new one for new work.', workflow_id);
    END IF;
    job_ids := stored.ids;
    duplicate := NOT stored.is_new;
    IF stored.is_new THEN
        INSERT INTO pulse.arrivals (oldest, priority, jobs, topic, ids)
        SELECT began_at, CASE WHEN job.queued THEN job.priority END, count(*), job.topic, (array_agg(job.id))[1:100]
        FROM pulse.jobs AS job
        WHERE job.id = ANY(job_ids)
        GROUP BY job.topic, CASE WHEN job.queued THEN job.priority END;
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION pulse.enqueue_workflow FROM PUBLIC;
