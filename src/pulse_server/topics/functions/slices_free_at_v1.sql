-- When the oldest starts stop counting.
CREATE OR REPLACE FUNCTION pulse.slices_free_at_v1(slices integer[], slice bigint, period interval) RETURNS timestamptz
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT to_timestamp((slice + min(place)) * pulse.slice_seconds_v1(period))
    FROM unnest(slices) WITH ORDINALITY AS counted (starts, place)
    WHERE counted.starts > 0
$$;
