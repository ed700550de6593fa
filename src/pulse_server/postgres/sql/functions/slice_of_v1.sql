-- The clock may be set back. Slices are not, by up to a period; from further ahead they begin anew, with all starts as of now:
-- else nothing would start for as long as the clock was ahead.
CREATE OR REPLACE FUNCTION pulse.slice_of_v1(moment timestamptz, period interval, at_least bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN at_least > slice.number + 20 THEN slice.number ELSE GREATEST(at_least, slice.number) END
    FROM (SELECT floor(date_part('epoch', moment) / pulse.slice_seconds_v1(period))::bigint AS number) AS slice
$$;
