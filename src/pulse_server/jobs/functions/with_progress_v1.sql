-- The progress of a job after a report of the attempt that began at `started_at`, or NULL. A report
-- that a newer one overtook changes nothing. Missing entries keep their values. The remaining time
-- is estimated from `since`, when the fraction was `since_fraction`. That is the start of the
-- attempt, or its first report if it continues an earlier attempt, or the last fall of the
-- fraction.
CREATE OR REPLACE FUNCTION pulse.with_progress_v1(progress jsonb, reported jsonb, attempt integer, started_at timestamptz)
RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT CASE
        WHEN reported IS NULL
          OR ((progress ->> 'reported_at')::timestamptz >= started_at
              AND (progress ->> 'number')::bigint > (reported ->> 'number')::bigint)
        THEN progress
        ELSE COALESCE(progress, '{}') || reported
            || jsonb_build_object('attempt', attempt, 'reported_at', clock_timestamp())
            || CASE
                WHEN reported ->> 'fraction' IS NULL THEN '{}'::jsonb
                WHEN progress ->> 'fraction' IS NULL
                THEN jsonb_build_object('since', started_at, 'since_fraction', 0)
                WHEN (progress ->> 'since')::timestamptz >= started_at
                  AND (reported ->> 'fraction')::float8 >= (progress ->> 'since_fraction')::float8
                THEN '{}'::jsonb
                ELSE jsonb_build_object('since', clock_timestamp(), 'since_fraction', reported -> 'fraction')
            END
    END
$$;
