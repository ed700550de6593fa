-- The sum of two sets of slices, at the same slice. The cap is above any rate.
CREATE OR REPLACE FUNCTION pulse.slices_of_both_v1(slices integer[], others integer[]) RETURNS integer[] LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(LEAST(COALESCE(one, 0) + COALESCE(other, 0), 1000000) ORDER BY place)
    FROM unnest(slices, others) WITH ORDINALITY AS counted (one, other, place)
$$;
