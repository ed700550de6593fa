
CREATE OR REPLACE FUNCTION pulse.slices_sum_v1(slices integer[]) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT COALESCE(sum(counted), 0)::int FROM unnest(slices) AS counted
$$;
