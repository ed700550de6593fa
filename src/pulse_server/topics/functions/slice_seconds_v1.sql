-- The length of a slice. A start is counted at its claim, and its handler begins later. So a start
-- counts for the period plus a margin of a tenth of it, at most a second. This span has 20 slices,
-- plus the current one: a start counts until its whole slice is older. If each handler begins
-- within the margin, no period has more starts than allowed. The slices cost up to a twentieth of
-- the rate.
CREATE OR REPLACE FUNCTION pulse.slice_seconds_v1(period interval) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT date_part('epoch', period + LEAST(period / 10, interval '1 second')) / 20
$$;
