-- The number of the slice at `moment`. If the clock is set back by up to a period, slices do not go
-- back. If it is set back further, they restart at the present, with all starts counted as of now:
-- otherwise nothing would start for that whole time.
CREATE OR REPLACE FUNCTION pulse.slice_of_v1(moment timestamptz, period interval, at_least bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN at_least > slice.number + 20 THEN slice.number ELSE GREATEST(at_least, slice.number) END
    FROM (SELECT floor(date_part('epoch', moment) / pulse.slice_seconds_v1(period))::bigint AS number) AS slice
$$;
