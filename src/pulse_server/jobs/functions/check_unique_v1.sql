-- The part of check_new_job for unique jobs. ADR-0066
CREATE OR REPLACE FUNCTION pulse.check_unique_v1(
    key text, scope text, mode text, period interval, longest interval, run_at timestamptz, delay interval
) RETURNS void LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    has_period constant boolean := mode IN ('debounce', 'throttle');
BEGIN
    IF key = '' THEN
        PERFORM pulse.refuse_v1('unique_key', 'is empty: name what there should be one job for.');
    ELSIF length(key) > 255 THEN
        PERFORM pulse.refuse_v1('unique_key', format('has %s characters; 255 are allowed at the most.', length(key)));
    END IF;
    IF (scope IN ('waiting', 'live')) IS NOT TRUE THEN
        PERFORM pulse.refuse_v1('unique_scope', format('%L is not known: use waiting, live.', left(scope, 40)));
    END IF;
    IF (mode IN ('skip', 'replace', 'debounce', 'throttle')) IS NOT TRUE THEN
        PERFORM pulse.refuse_v1('on_conflict', format(
            '%L is not known: use skip, replace, debounce, throttle.', left(mode, 40)));
    END IF;
    IF has_period AND period IS NULL THEN
        PERFORM pulse.refuse_v1('period', format('is missing: %s needs one.', mode));
    ELSIF period IS NOT NULL AND NOT has_period THEN
        PERFORM pulse.refuse_v1('period', format('belongs to debounce and throttle, not to %s.', mode));
    ELSIF period < interval '1 millisecond' THEN
        PERFORM pulse.refuse_v1('period', 'is below a millisecond: give a longer one.');
    ELSIF period > interval '366 days' THEN
        PERFORM pulse.refuse_v1('period', 'is longer than 366 days: others may need a job with this key.');
    END IF;
    IF mode IN ('replace', 'debounce') AND scope <> 'waiting' THEN
        PERFORM pulse.refuse_v1('on_conflict', format(
            'is %s, which needs the scope waiting: a job that runs cannot be replaced.', mode));
    END IF;
    IF mode = 'debounce' AND (run_at IS NOT NULL OR delay > interval '0') THEN
        PERFORM pulse.refuse_v1(
            'on_conflict', 'is debounce, which sets when the job starts: give no delay and no run_at.');
    END IF;
    IF longest IS NOT NULL AND mode <> 'debounce' THEN
        PERFORM pulse.refuse_v1('longest', format('belongs to debounce, not to %s.', mode));
    ELSIF longest < period THEN
        PERFORM pulse.refuse_v1('longest', 'is below the period: a single submit waits for longer.');
    ELSIF longest > interval '366 days' THEN
        PERFORM pulse.refuse_v1('longest', 'is longer than 366 days: others may need a job with this key.');
    END IF;
END $$;
