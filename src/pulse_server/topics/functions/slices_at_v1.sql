-- The slices, shifted to a later slice.
CREATE OR REPLACE FUNCTION pulse.slices_at_v1(slices integer[], slice bigint, later bigint) RETURNS integer[] LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN cardinality(slices) = 0 OR later - slice > 20 THEN array_fill(0, ARRAY[21])
        WHEN later = slice THEN slices
        WHEN later < slice THEN array_fill(0, ARRAY[20]) || (SELECT sum(starts)::int FROM unnest(slices) AS starts)
        ELSE slices[1 + (later - slice)::int : 21] || array_fill(0, ARRAY[(later - slice)::int])
    END
$$;
