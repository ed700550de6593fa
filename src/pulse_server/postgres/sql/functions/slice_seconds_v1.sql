-- A start is counted when it is claimed, and its handler begins later. So starts count for the period and a margin, a tenth of it
-- and at most a second, in 20 slices and the one under way: until the whole slice is older than that. In any period of that length
-- no more handlers begin than are allowed, if each begins within the margin. Up to a twentieth is given away for the slices.
CREATE OR REPLACE FUNCTION pulse.slice_seconds_v1(period interval) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT date_part('epoch', period + LEAST(period / 10, interval '1 second')) / 20
$$;
