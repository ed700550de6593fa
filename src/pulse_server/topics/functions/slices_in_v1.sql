-- The slices at a later slice, converted to another period. Slices of another length cannot be
-- mapped: all starts that count now count for a whole period from now on.
CREATE OR REPLACE FUNCTION pulse.slices_in_v1(
    slices integer[], slice bigint, of_period interval, later bigint, period interval
) RETURNS integer[] LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN of_period = period THEN pulse.slices_at_v1(slices, slice, later)
        ELSE array_fill(0, ARRAY[20]) || pulse.slices_sum_v1(
            pulse.slices_at_v1(slices, slice, pulse.slice_of_v1(clock_timestamp(), of_period, slice)))
    END
$$;
