-- What the relay to a broker reads: a few ready jobs of each class, at most 200 lanes of it and 50 jobs a lane. It need
-- not be all, nor in the claim's order: a message only says that there is work. A walk over the claim's index, so that
-- neither a backlog nor scheduled or unsupported rows cost anything. Parked jobs and paused classes wake nobody.
CREATE FUNCTION __SCHEMA__.waiting(classes text[], max_jobs integer DEFAULT 100)
RETURNS TABLE (class text, id bigint, age double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
AS $$
  SELECT c.name, w.id, extract(epoch FROM clock_timestamp() - w.run_after)::double precision
    FROM __SCHEMA__.class c
   CROSS JOIN LATERAL (
     WITH RECURSIVE step AS (
       (SELECT r.priority, r.kind_version, r.lane FROM __SCHEMA__.ready r WHERE r.class_id = c.id
         ORDER BY r.priority DESC, r.kind_version DESC, r.lane DESC LIMIT 1)
       UNION ALL
       SELECT n.* FROM step s CROSS JOIN LATERAL (
         SELECT r.priority, r.kind_version, r.lane FROM __SCHEMA__.ready r
          WHERE r.class_id = c.id AND (r.priority, r.kind_version, r.lane) < (s.priority, s.kind_version, s.lane)
          ORDER BY r.priority DESC, r.kind_version DESC, r.lane DESC LIMIT 1) n
     )
     SELECT d.id, d.run_after FROM (SELECT * FROM step LIMIT 200) s CROSS JOIN LATERAL (
       SELECT r.id, r.run_after FROM __SCHEMA__.ready r
        WHERE r.class_id = c.id AND r.priority = s.priority AND r.kind_version = s.kind_version AND r.lane = s.lane
          AND r.run_after <= statement_timestamp()
        ORDER BY r.run_after, r.id LIMIT 50) d
      WHERE s.lane >= -1
      LIMIT LEAST(GREATEST(max_jobs, 0), 1000)) w
   WHERE c.name = ANY (classes) AND NOT c.paused
$$;
REVOKE ALL ON FUNCTION __SCHEMA__.waiting(text[], integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION __SCHEMA__.waiting(text[], integer) TO __WORKER__, __OPERATOR__;
