-- How many jobs of a lane may run at once, where lanes have a limit. Where order is kept, the
-- lane's own limit does not count.
CREATE OR REPLACE FUNCTION pulse.places_of_v1(policy pulse.limit_policies, own_limit integer) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN policy.ordered THEN policy.per_lane ELSE COALESCE(own_limit, policy.per_lane) END
$$;
