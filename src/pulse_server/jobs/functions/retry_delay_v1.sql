-- The delay after this number of failures, by the backoff of a policy; NULL: its square, in
-- seconds. A retry by an operator continues the count, so both are bounded: the square at three
-- years, the power far above any `longest`.
CREATE OR REPLACE FUNCTION pulse.retry_delay_v1(backoff jsonb, failures integer)
RETURNS interval LANGUAGE sql VOLATILE AS $$
    SELECT CASE
        WHEN backoff IS NULL THEN LEAST(failures, 10000) ^ 2 * interval '1 second'
        ELSE interval '1 second'
            * LEAST(
                (backoff ->> 'longest')::float8,
                (backoff ->> 'first')::float8
                    * exp(LEAST((GREATEST(failures, 1) - 1) * ln((backoff ->> 'factor')::float8), 200)))
            * (1 + (backoff ->> 'jitter')::float8 * (2 * random() - 1))
    END
$$;
