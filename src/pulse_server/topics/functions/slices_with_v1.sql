
CREATE OR REPLACE FUNCTION pulse.slices_with_v1(slices integer[], starts integer) RETURNS integer[] LANGUAGE sql IMMUTABLE AS $$
    SELECT slices[1:20] || (slices[21] + starts)
$$;
