-- snapshot(): all that a planner, a dashboard and `jobqueue stats` ask about a queue, in one call of bounded cost.
--
-- What is few is counted, what is many is estimated, and the answer says which. Nothing here keeps anything between two
-- calls, and no job's path writes anything for it.

-- For each time (newest first) the first id that was created after it. Ids and times of creation grow together but for moments,
-- so a bisection of the bodies' key finds it; who reads from there looks at the times as well.
CREATE FUNCTION __SCHEMA__.first_ids(cuts timestamptz[]) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
  high   bigint := (SELECT s.last_value + 1 FROM __SCHEMA__.job_id s);
  low    bigint;
  look   bigint;
  step   bigint;
  first_ bigint := high;
  since  timestamptz;
  b      record;
  found_ bigint[] := '{}';
BEGIN
  FOREACH since IN ARRAY cuts LOOP
    -- Every body at or above `high` was created since; `first_` is the lowest seen. Leap down until one was not created since,
    -- then halve what lies between.
    step := 512;
    LOOP
      low := GREATEST(high - step, 0);
      EXIT WHEN low = high;
      SELECT x.id, x.created_at INTO b FROM __SCHEMA__.body x WHERE x.id >= low AND x.id < high ORDER BY x.id LIMIT 1;
      IF b.created_at <= since THEN low := b.id + 1; EXIT; END IF;
      first_ := COALESCE(b.id, first_);
      high := low;
      step := step * 8;
    END LOOP;
    WHILE low < high LOOP
      look := (low + high) / 2;
      SELECT x.id, x.created_at INTO b FROM __SCHEMA__.body x WHERE x.id >= look AND x.id < high ORDER BY x.id LIMIT 1;
      IF b.created_at <= since THEN low := b.id + 1; ELSE high := look; first_ := COALESCE(b.id, first_); END IF;
    END LOOP;
    found_ := found_ || first_;
  END LOOP;
  RETURN found_;
END
$$;

-- Jobs created since each time and due by now, by class. Up to 2,000 ids are read one by one, from the newest on; of what
-- is older, an id out of each of 400 equal pieces of each span. A job that was enqueued for later and never tried is not due yet;
-- `scheduled` says whether there is any, for they are looked up one by one.
CREATE FUNCTION __SCHEMA__.created(moment timestamptz, cuts timestamptz[], firsts bigint[], scheduled boolean)
RETURNS TABLE (class_id smallint, counts double precision[])
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off SET enable_sort = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  head    bigint := (SELECT s.last_value + 1 FROM __SCHEMA__.job_id s);
  floor_  bigint := head;                           -- read one by one from here
  sparse  bigint[] := '{}';
  weights double precision[] := '{}';
  upper_  bigint;
  pieces  integer;
BEGIN
  FOR n IN 1..cardinality(firsts) LOOP
    IF sparse = '{}' AND head - firsts[n] <= 2000 THEN
      floor_ := firsts[n];
    ELSE
      upper_ := CASE n WHEN 1 THEN head ELSE firsts[n - 1] END;
      pieces := LEAST(400, upper_ - firsts[n]);
      sparse := sparse || ARRAY(SELECT firsts[n] + floor((g + random()) * (upper_ - firsts[n]) / pieces)::bigint FROM generate_series(0, pieces - 1) AS g);
      weights := array_cat(weights, array_fill((upper_ - firsts[n])::double precision / NULLIF(pieces, 0), ARRAY[pieces]));
    END IF;
  END LOOP;
  RETURN QUERY
    SELECT j.class_id,
           ARRAY[COALESCE(sum(j.weight) FILTER (WHERE j.created_at > cuts[1]), 0),
                 COALESCE(sum(j.weight) FILTER (WHERE j.created_at > cuts[2]), 0),
                 COALESCE(sum(j.weight) FILTER (WHERE j.created_at > cuts[3]), 0),
                 COALESCE(sum(j.weight) FILTER (WHERE j.created_at > cuts[4]), 0)]
      FROM (SELECT b.class_id, b.created_at, b.id, 1::double precision AS weight
              FROM __SCHEMA__.body b WHERE b.id >= floor_ AND b.id < head
             UNION ALL
            SELECT b.class_id, b.created_at, b.id, s.weight
              FROM (SELECT x.id, x.class_id, x.created_at FROM __SCHEMA__.body x
                     WHERE x.id = ANY (sparse) AND x.id >= firsts[cardinality(firsts)] AND x.id < floor_) b
              JOIN unnest(sparse, weights) AS s(id, weight) ON s.id = b.id) j
      LEFT JOIN (SELECT r.id FROM __SCHEMA__.ready r
                  WHERE scheduled AND r.id >= floor_ AND r.id < head AND r.attempts = 0 AND r.refunds = 0 AND r.run_after > moment
                 UNION ALL
                SELECT r.id FROM __SCHEMA__.ready r
                  WHERE scheduled AND r.id = ANY (sparse) AND r.id < floor_ AND r.attempts = 0 AND r.refunds = 0 AND r.run_after > moment) later
        ON later.id = j.id
     WHERE later.id IS NULL AND j.created_at <= moment AND j.created_at > cuts[4]
     GROUP BY j.class_id;
END
$$;

-- Whom a class without workers had last, for what waits there.
CREATE INDEX worker_taught ON __SCHEMA__.worker (class_id, id) WHERE lanes <> '{}';

-- What waits, by class. The first rows of each lane, due and later, come from a walk over the claim's index; a class that has
-- more is counted on a sample of pages, one out of each of 32 equal pieces of the table. Up to 32 pages are read whole.
CREATE FUNCTION __SCHEMA__.backlog(moment timestamptz, cuts timestamptz[], firsts bigint[])
RETURNS TABLE (
  class_id smallint, ready bigint, scheduled bigint, unsupported bigint, parked bigint, crowded bigint, first_due timestamptz,
  ages double precision[], soon bigint[], again double precision[], estimated boolean
)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_memoize = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  pages    bigint := pg_relation_size('__SCHEMA__.ready') / current_setting('block_size')::integer;
  looks    integer := LEAST(pages, 32);
  share    double precision := pages::double precision / NULLIF(looks, 0);   -- pages that one sampled page stands for
  horizons constant double precision[] := '{1,2,5,10,20,30,60,120}';
BEGIN
  RETURN QUERY
  WITH RECURSIVE step AS (
    (SELECT r.class_id, r.priority, r.kind_version, r.lane, r.run_after FROM __SCHEMA__.ready r
      ORDER BY r.class_id, r.priority, r.kind_version, r.lane, r.run_after LIMIT 1)
    UNION ALL
    SELECT n.* FROM step s CROSS JOIN LATERAL (
      SELECT r.class_id, r.priority, r.kind_version, r.lane, r.run_after FROM __SCHEMA__.ready r
       WHERE (r.class_id, r.priority, r.kind_version, r.lane) > (s.class_id, s.priority, s.kind_version, s.lane)
       ORDER BY r.class_id, r.priority, r.kind_version, r.lane, r.run_after LIMIT 1) n
  ), lanes AS MATERIALIZED (
    SELECT s.*, row_number() OVER () AS n FROM (SELECT * FROM step LIMIT 20000) s
  ), most AS MATERIALIZED (
    SELECT GREATEST(2, 1000 / GREATEST(count(*), 1))::bigint AS most FROM lanes
  ), walked AS MATERIALIZED (
    SELECT l.class_id, l.kind_version, l.lane, l.n, x.* FROM lanes l CROSS JOIN LATERAL (
      (SELECT r.run_after, r.id, r.attempts FROM __SCHEMA__.ready r
        WHERE r.class_id = l.class_id AND r.priority = l.priority AND r.kind_version = l.kind_version AND r.lane = l.lane AND r.run_after <= moment
        ORDER BY r.run_after, r.id LIMIT (SELECT most FROM most))
      UNION ALL
      (SELECT r.run_after, r.id, r.attempts FROM __SCHEMA__.ready r
        WHERE r.class_id = l.class_id AND r.priority = l.priority AND r.kind_version = l.kind_version AND r.lane = l.lane AND r.run_after > moment
        ORDER BY r.run_after, r.id LIMIT (SELECT most FROM most))) x
     WHERE share > 1 AND l.n <= 1000
  ), cut AS MATERIALIZED (
    SELECT c.class_id, share = 1 OR COALESCE(bool_or(c.due >= (SELECT most FROM most) OR c.n > 1000), true) AS due,
           share = 1 OR COALESCE(bool_or(c.later >= (SELECT most FROM most) OR c.n > 1000), true) AS later,
           -- Until when the walk saw all that comes.
           min(CASE WHEN share = 1 OR c.n > 1000 THEN '-infinity' WHEN c.later >= (SELECT most FROM most) THEN c.reached ELSE 'infinity' END) AS seen
      FROM (SELECT l.class_id, l.n, count(w.id) FILTER (WHERE w.run_after <= moment) AS due, count(w.id) FILTER (WHERE w.run_after > moment) AS later,
                   max(w.run_after) AS reached
              FROM lanes l LEFT JOIN walked w ON w.n = l.n GROUP BY l.class_id, l.n) c
     GROUP BY c.class_id
  ), rows_ AS MATERIALIZED (
    SELECT w.class_id, w.kind_version, w.lane, w.run_after, w.id, w.attempts, 1::double precision AS weight
      FROM walked w JOIN cut c ON c.class_id = w.class_id WHERE CASE WHEN w.run_after <= moment THEN NOT c.due ELSE NOT c.later END
    UNION ALL
    SELECT p.class_id, p.kind_version, p.lane, p.run_after, p.id, p.attempts, share
      FROM generate_series(0, looks - 1) AS g(n)
     CROSS JOIN LATERAL (SELECT floor((g.n + random()) * share)::bigint AS page) a
     CROSS JOIN LATERAL (
       SELECT r.class_id, r.kind_version, r.lane, r.run_after, r.id, r.attempts FROM __SCHEMA__.ready r
        WHERE r.ctid >= ('(' || a.page || ',0)')::tid AND r.ctid < ('(' || a.page + 1 || ',0)')::tid OFFSET 0) p
      LEFT JOIN cut c ON c.class_id = p.class_id
     WHERE COALESCE(CASE WHEN p.run_after <= moment THEN c.due ELSE c.later END, true)
  ), taught AS MATERIALIZED (
    -- What the workers understand that are there; while none is, what the last one did. Before the first one, nobody knows.
    SELECT c.id AS class_id, COALESCE(live.lanes, last.lanes) AS lanes
      FROM __SCHEMA__.class c
     CROSS JOIN LATERAL (SELECT array_agg(DISTINCT x.lane) AS lanes FROM __SCHEMA__.worker w, unnest(w.lanes) AS x(lane)
                          WHERE w.class_id = c.id AND w.state <> 'gone') live
      LEFT JOIN LATERAL (SELECT w.lanes FROM __SCHEMA__.worker w WHERE live.lanes IS NULL AND w.class_id = c.id AND w.lanes <> '{}'
                          ORDER BY w.id DESC LIMIT 1) last ON true
     WHERE COALESCE(live.lanes, last.lanes) IS NOT NULL
  ), due AS (
    SELECT r.class_id, sum(r.weight) AS ready,
           sum(r.weight) FILTER (WHERE r.lane < -1) AS parked,
           sum(r.weight) FILTER (WHERE r.lane >= -1 AND a.known IS NOT NULL AND k.known IS NULL) AS unsupported,
           sum(r.weight) FILTER (WHERE r.lane > 0 AND k.known AND t.full_) AS crowded
      FROM (SELECT x.class_id, x.kind_version, x.lane, count(*) * max(x.weight) AS weight FROM rows_ x WHERE x.run_after <= moment GROUP BY 1, 2, 3) r
      LEFT JOIN (SELECT y.class_id, true AS known FROM taught y) a ON a.class_id = r.class_id
      LEFT JOIN (SELECT y.class_id, x.lane AS kind_version, true AS known FROM taught y, unnest(y.lanes) AS x(lane)) k
        ON k.class_id = r.class_id AND k.kind_version = r.kind_version
      LEFT JOIN (SELECT l.class_id, __SCHEMA__.tenant_lane(l.tenant_hash) AS lane, true AS full_ FROM __SCHEMA__.lease l JOIN __SCHEMA__.class c ON c.id = l.class_id
                  WHERE l.tenant_hash <> 0 GROUP BY 1, 2, c.tenant_limit HAVING count(*) >= c.tenant_limit) t
        ON t.class_id = r.class_id AND t.lane = r.lane
     GROUP BY r.class_id
  ), times AS (
    SELECT x.class_id, ARRAY(SELECT x.at[GREATEST(ceil(g * cardinality(x.at) / 8.0)::integer, 1)] FROM generate_series(0, 7) AS g ORDER BY g) AS at
      FROM (SELECT r.class_id, array_agg(r.run_after ORDER BY r.run_after) AS at FROM rows_ r WHERE r.run_after <= moment GROUP BY r.class_id) x
  ), later AS (
    SELECT r.class_id, count(*) * max(r.weight) AS scheduled FROM rows_ r WHERE r.run_after > moment GROUP BY r.class_id
  ), buckets AS (
    SELECT x.class_id, width_bucket(date_part('epoch', x.run_after - moment), horizons) AS bucket, sum(x.walked) AS walked, sum(x.weight) AS weight
      FROM (SELECT w.class_id, w.run_after, 1 AS walked, 0 AS weight FROM walked w
             UNION ALL
            SELECT r.class_id, r.run_after, 0, r.weight FROM rows_ r) x
     WHERE x.run_after > moment AND x.run_after < moment + interval '120 seconds' GROUP BY 1, 2
  ), soon AS (
    SELECT x.class_id, array_agg(x.n ORDER BY x.i) AS counts FROM (
      SELECT b.class_id, h.i, round(GREATEST(sum(b.walked) FILTER (WHERE b.bucket < h.i), sum(b.weight) FILTER (
               WHERE b.bucket < h.i AND moment + make_interval(secs => horizons[h.i]) > c.seen), 0))::bigint AS n
        FROM buckets b JOIN cut c ON c.class_id = b.class_id CROSS JOIN generate_series(1, 8) AS h(i) GROUP BY b.class_id, h.i) x GROUP BY x.class_id
  ), again AS (
    SELECT r.class_id,
           ARRAY[COALESCE(sum(r.weight) FILTER (WHERE r.run_after > cuts[1] AND (r.attempts > 0 OR r.id < firsts[1])), 0),
                 COALESCE(sum(r.weight) FILTER (WHERE r.run_after > cuts[2] AND (r.attempts > 0 OR r.id < firsts[2])), 0),
                 COALESCE(sum(r.weight) FILTER (WHERE r.run_after > cuts[3] AND (r.attempts > 0 OR r.id < firsts[3])), 0),
                 COALESCE(sum(r.weight) FILTER (WHERE r.run_after > cuts[4] AND (r.attempts > 0 OR r.id < firsts[4])), 0)] AS counts
      FROM rows_ r WHERE r.run_after <= moment AND r.run_after > cuts[4] GROUP BY r.class_id
  ), first AS (
    SELECT l.class_id, min(l.run_after) AS at FROM lanes l WHERE l.run_after <= moment GROUP BY l.class_id
  ), seen AS (
    SELECT w.class_id, count(*) FILTER (WHERE w.run_after <= moment) AS due, count(*) FILTER (WHERE w.run_after > moment) AS later FROM walked w GROUP BY w.class_id
  )
  SELECT c.class_id,
         -- A sample may miss the few that the walk saw.
         GREATEST(round(d.ready)::bigint, s.due, (f.at IS NOT NULL)::integer), GREATEST(round(l.scheduled)::bigint, s.later, 0),
         COALESCE(round(d.unsupported)::bigint, 0), COALESCE(round(d.parked)::bigint, 0), COALESCE(round(d.crowded)::bigint, 0), f.at,
         CASE WHEN f.at IS NOT NULL THEN ARRAY(
           SELECT date_part('epoch', moment - CASE x.ord WHEN 1 THEN f.at ELSE x.at END)
             FROM unnest(COALESCE(q.at, array_fill(f.at, ARRAY[8]))) WITH ORDINALITY AS x(at, ord) ORDER BY x.ord) ELSE '{}' END,
         COALESCE(o.counts, '{0,0,0,0,0,0,0,0}'), COALESCE(a.counts, '{0,0,0,0}'), share > 1 AND (c.due OR c.later)
    FROM cut c LEFT JOIN due d ON d.class_id = c.class_id LEFT JOIN times q ON q.class_id = c.class_id LEFT JOIN later l ON l.class_id = c.class_id
    LEFT JOIN soon o ON o.class_id = c.class_id LEFT JOIN again a ON a.class_id = c.class_id LEFT JOIN first f ON f.class_id = c.class_id LEFT JOIN seen s ON s.class_id = c.class_id;
END
$$;

-- Lengths are counted in steps of the fourth root of two: step n holds those of at most 0.001·2^(n/4) seconds.
CREATE FUNCTION __SCHEMA__.length_step(seconds double precision) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT ceil(ln(GREATEST(seconds, 0.001) / 0.001) * 4 / ln(2.0::double precision) - 1e-9)::integer $$;

-- How long ago a start was, in steps of a quarter: step 0 is the last 30 seconds, step 15 the last 853.
CREATE FUNCTION __SCHEMA__.start_step(seconds double precision) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT ceil(ln(GREATEST(seconds, 30) / 30) / ln(1.25::double precision) - 1e-9)::integer $$;

-- Attempts that were started within the last 853 seconds and have ended, by class, start and length. Ends are written one behind
-- the other, so each table is read from its end backwards: 8 pages whole, then 8 of the next 24, then a third (by the token, which
-- is random) of 8 of the next 96, and so on, until there is nothing as new. Where retention freed room, ends are
-- written into it instead: so the 1,000 ids that end about now are read one by one, the newest and those below each class's newest
-- lease. Not those that were given back: they are no measure of the work. Late are those that ended since `lately`.
CREATE FUNCTION __SCHEMA__.ended(moment timestamptz, lately timestamptz)
RETURNS TABLE (class_id smallint, start integer, length integer, count double precision, seconds double precision, longest double precision, failed double precision,
               late_count double precision, late_seconds double precision)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_memoize = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  head   bigint := (SELECT s.last_value FROM __SCHEMA__.job_id s);
  since  timestamptz := moment - make_interval(secs => 30 * 1.25 ^ 15);
  near   int8multirange := (
    SELECT range_agg(int8range(a.id - 1000 / a.all_, a.id, '[]'))
      FROM (SELECT x.id, count(*) OVER () AS all_ FROM (SELECT head AS id UNION SELECT max(l.id) FROM __SCHEMA__.lease l GROUP BY l.class_id) x) a);
  leaf   record;
BEGIN
  -- Where the newest jobs and those in flight belong, four ranges of ids at most: what ends now ends there.
  FOR leaf IN
    SELECT format('__SCHEMA__.%I', p.parent || x.suffix) AS name, p.id, p.columns,
           pg_relation_size(format('__SCHEMA__.%I', p.parent || x.suffix)::regclass) / current_setting('block_size')::integer AS pages
      FROM ((SELECT '_' || r.lower AS suffix FROM __SCHEMA__.id_range r WHERE r.lower <= head ORDER BY r.lower DESC LIMIT 2)
             UNION
            (SELECT '_' || r.lower FROM __SCHEMA__.id_range r
              WHERE EXISTS (SELECT FROM __SCHEMA__.lease l WHERE l.id >= r.lower AND l.id < r.upper) ORDER BY r.lower DESC LIMIT 2)
             UNION
            SELECT '_default' WHERE NOT EXISTS (SELECT FROM __SCHEMA__.id_range r WHERE r.lower <= head AND r.upper > head)) x
     CROSS JOIN (VALUES
       ('outcome', 'id', 'x.class_id AS class_id, x.started_at, x.finished_at, x.status = ''x'' AS failed, x.token IS NOT NULL AND x.status <> ''c'' AS counts'),
       ('attempt', 'job_id', '(SELECT w.class_id FROM __SCHEMA__.worker w WHERE w.id = x.worker_id) AS class_id, x.started_at, x.finished_at,
                    x.outcome <> ''done'' AS failed, x.outcome IN (''retry'', ''lost'', ''done'', ''dead'') AS counts')) AS p(parent, id, columns)
  LOOP
    CONTINUE WHEN leaf.pages = 0;
    RETURN QUERY EXECUTE format($sql$
      WITH RECURSIVE stage AS (
        SELECT 0::bigint AS low, LEAST(8, $3) AS size
        UNION ALL
        SELECT n.low, LEAST(3 * n.low, $3 - n.low) FROM stage s CROSS JOIN LATERAL (SELECT s.low + s.size AS low) n
         -- The last pages may be empty still, or of a backend that was slow to fill them.
         WHERE n.low < $3 AND (n.low < 128 OR EXISTS (
           SELECT FROM %2$s x WHERE x.ctid >= ('(' || $3 - n.low || ',0)')::tid AND x.ctid < ('(' || $3 - n.low + 1 || ',0)')::tid AND x.finished_at > $4))
      )
      SELECT e.class_id, e.start, e.length, sum(e.weight), sum(e.seconds * e.weight), max(e.seconds), COALESCE(sum(e.weight) FILTER (WHERE e.failed), 0),
             COALESCE(sum(e.weight) FILTER (WHERE e.late), 0), COALESCE(sum(e.seconds * e.weight) FILTER (WHERE e.late), 0)
        FROM (SELECT y.class_id, y.failed, y.seconds, y.finished_at > $5 AS late, y.weight, __SCHEMA__.length_step(y.seconds) AS length,
                     __SCHEMA__.start_step(date_part('epoch', $2 - y.started_at)) AS start
                FROM (SELECT o.*, a.weight
                        FROM stage s
                       CROSS JOIN LATERAL (SELECT LEAST(s.size, $1) AS looks, s.size <= 24 AS whole) p
                       CROSS JOIN LATERAL (SELECT $3 - 1 - s.low - floor((i + random()) * s.size / p.looks)::bigint AS page, p.whole,
                                                  s.size::double precision / p.looks * CASE WHEN p.whole THEN 1 ELSE 3 END AS weight
                                             FROM generate_series(0, p.looks - 1) AS i) a
                       CROSS JOIN LATERAL (
                         SELECT %1$s, GREATEST(date_part('epoch', x.finished_at - x.started_at), 0) AS seconds FROM %2$s x
                          WHERE x.ctid >= ('(' || a.page || ',0)')::tid AND x.ctid < ('(' || a.page + 1 || ',0)')::tid
                            AND x.started_at > $4 AND x.started_at <= $2 AND (a.whole OR x.token %% 3 = 0) AND NOT x.%3$I <@ $6 OFFSET 0) o
                       UNION ALL
                      SELECT o.*, 1
                        FROM unnest($6) AS n(ids)
                       CROSS JOIN LATERAL (
                         SELECT %1$s, GREATEST(date_part('epoch', x.finished_at - x.started_at), 0) AS seconds FROM %2$s x
                          WHERE x.%3$I >= lower(n.ids) AND x.%3$I < upper(n.ids) AND x.started_at > $4 AND x.started_at <= $2 OFFSET 0) o) y
               WHERE y.counts) e
       WHERE e.class_id IS NOT NULL GROUP BY 1, 2, 3 $sql$, leaf.columns, leaf.name, leaf.id)
      USING 8, moment, leaf.pages, since, lately, near;
  END LOOP;
END
$$;

-- All facts of all classes in one call. Times are epoch seconds, ages and durations seconds. `tick` says how long the caller's
-- rounds are: arrivals are counted over the last one and the one before.
CREATE FUNCTION __SCHEMA__.snapshot(tick double precision DEFAULT 5) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  moment  timestamptz := clock_timestamp();
  cuts    timestamptz[];
  firsts  bigint[];
  answer  jsonb;
BEGIN
  IF snapshot.tick IS NULL OR snapshot.tick NOT BETWEEN 0.1 AND 10 THEN
    RAISE EXCEPTION 'tick: % is outside 0.1..10 seconds', snapshot.tick USING ERRCODE = 'JQ003';
  END IF;
  cuts := ARRAY(SELECT moment - make_interval(secs => s.span) FROM unnest(ARRAY[snapshot.tick, 2 * snapshot.tick, 20, 60]) WITH ORDINALITY AS s(span, n) ORDER BY s.n);
  firsts := __SCHEMA__.first_ids(cuts);

  WITH leases AS MATERIALIZED (
    SELECT l.class_id, l.worker_id, l.leased_until > moment AS live, l.length, __SCHEMA__.start_step(max(l.seconds)) AS start,
           count(*) AS jobs, sum(l.seconds) AS seconds, max(l.seconds) AS longest, min(l.leased_until) AS first_until,
           count(*) FILTER (WHERE l.due_at > cuts[1] AND l.due_at <= moment AND (l.attempts > 1 OR l.id < firsts[1])) AS again_1,
           count(*) FILTER (WHERE l.due_at > cuts[2] AND l.due_at <= moment AND (l.attempts > 1 OR l.id < firsts[2])) AS again_2,
           count(*) FILTER (WHERE l.due_at > cuts[3] AND l.due_at <= moment AND (l.attempts > 1 OR l.id < firsts[3])) AS again_3,
           count(*) FILTER (WHERE l.due_at > cuts[4] AND l.due_at <= moment AND (l.attempts > 1 OR l.id < firsts[4])) AS again_4
      FROM (SELECT x.*, e.seconds, __SCHEMA__.length_step(e.seconds) AS length FROM __SCHEMA__.lease x
             CROSS JOIN LATERAL (SELECT GREATEST(date_part('epoch', moment - x.started_at), 0) AS seconds) e) l
     GROUP BY 1, 2, 3, 4
  ), running AS (
    SELECT l.class_id, sum(l.jobs) FILTER (WHERE l.live) AS in_flight, sum(l.jobs) FILTER (WHERE NOT l.live) AS expired,
           min(l.first_until) FILTER (WHERE NOT l.live) AS first_expired, max(l.longest) FILTER (WHERE l.live) AS longest,
           ARRAY[sum(l.again_1), sum(l.again_2), sum(l.again_3), sum(l.again_4)] AS again
      FROM leases l GROUP BY l.class_id
  ), held AS (
    SELECT l.worker_id, sum(l.jobs) AS jobs, sum(l.seconds) AS seconds FROM leases l GROUP BY l.worker_id
  ), over_ AS MATERIALIZED (
    SELECT e.class_id, e.start, e.length, sum(e.count) AS count, sum(e.seconds) AS seconds, max(e.longest) AS longest, sum(e.failed) AS failed,
           sum(e.late_count) AS late_count, sum(e.late_seconds) AS late_seconds
      FROM __SCHEMA__.ended(moment, cuts[2]) e GROUP BY 1, 2, 3
  ), reach AS (
    -- How far back the starts go, for 500 of them.
    SELECT s.class_id, COALESCE(min(s.start) FILTER (WHERE s.upto >= 500), 15) AS start
      FROM (SELECT x.class_id, x.start, sum(sum(x.n)) OVER (PARTITION BY x.class_id ORDER BY x.start) AS upto
              FROM (SELECT o.class_id, o.start, o.count AS n FROM over_ o WHERE o.start <= 15
                     UNION ALL
                    SELECT l.class_id, l.start, l.jobs FROM leases l WHERE l.live AND l.start <= 15) x
             GROUP BY x.class_id, x.start) s
     GROUP BY s.class_id
  ), finished AS (
    SELECT s.class_id, jsonb_agg(jsonb_build_array(s.longest, s.count, s.seconds) ORDER BY s.longest) AS spans, sum(s.failed) AS failed
      FROM (SELECT o.class_id, o.length, max(o.longest) AS longest, sum(o.count) AS count, sum(o.seconds) AS seconds, sum(o.failed) AS failed
              FROM over_ o JOIN reach r ON r.class_id = o.class_id WHERE o.start <= r.start GROUP BY o.class_id, o.length) s
     GROUP BY s.class_id
  ), late AS (
    SELECT o.class_id, jsonb_build_array(sum(o.late_count), sum(o.late_seconds)) AS span FROM over_ o GROUP BY o.class_id
  ), unfinished AS (
    SELECT s.class_id, jsonb_agg(jsonb_build_array(s.longest, s.jobs, s.seconds) ORDER BY s.longest) AS spans
      FROM (SELECT l.class_id, l.length, max(l.longest) AS longest, sum(l.jobs) AS jobs, sum(l.seconds) AS seconds
              FROM leases l WHERE l.live GROUP BY l.class_id, l.length) s
     GROUP BY s.class_id
  ), waiting AS MATERIALIZED (
    SELECT b.* FROM __SCHEMA__.backlog(moment, cuts, firsts) b
  ), due AS (
    SELECT c.id AS class_id, (SELECT s.last_value + 1 - firsts[4] > 2000 FROM __SCHEMA__.job_id s) AS guessed,
           (SELECT array_agg(COALESCE(w.again[i], 0) + COALESCE(r.again[i], 0) ORDER BY i) FROM generate_series(1, 4) AS i) AS again,
           COALESCE(f.counts, '{0,0,0,0}') AS fresh,
           w.ready, w.scheduled, w.unsupported, w.parked, w.crowded, w.first_due, w.ages, w.soon, COALESCE(w.estimated, false) AS estimated,
           COALESCE(r.in_flight, 0) AS in_flight, COALESCE(r.expired, 0) AS expired, r.first_expired, COALESCE(r.longest, 0) AS longest
      FROM __SCHEMA__.class c
      LEFT JOIN waiting w ON w.class_id = c.id
      LEFT JOIN __SCHEMA__.created(moment, cuts, firsts, EXISTS (SELECT FROM waiting x WHERE x.scheduled > 0)) f ON f.class_id = c.id
      LEFT JOIN running r ON r.class_id = c.id
  )
  SELECT jsonb_build_object(
    'now', extract(epoch FROM moment),
    'classes', COALESCE((
      SELECT jsonb_agg(jsonb_build_object(
        'class', c.name, 'paused', c.paused, 'target_age', extract(epoch FROM c.target_age), 'lease', extract(epoch FROM c.lease),
        'timeout', extract(epoch FROM c.timeout), 'max_attempts', c.max_attempts, 'concurrency', c.concurrency,
        'downstream', d.name, 'units_per_job', c.units_per_job, 'units_per_pod', c.units_per_pod,
        'dead_retention', extract(epoch FROM c.dead_retention), 'estimated', x.estimated,
        'ready', COALESCE(x.ready, 0) + x.expired,
        'scheduled', COALESCE(x.scheduled, 0),
        'due_soon', (SELECT jsonb_agg(jsonb_build_array(h.seconds, COALESCE(x.soon[h.n], 0)) ORDER BY h.n)
                       FROM unnest('{1,2,5,10,20,30,60,120}'::integer[]) WITH ORDINALITY AS h(seconds, n)),
        'blocked', jsonb_build_object('unsupported', COALESCE(x.unsupported, 0), 'key', COALESCE(x.parked, 0), 'tenant', COALESCE(x.crowded, 0)),
        'oldest_age', GREATEST(0, COALESCE(extract(epoch FROM moment - LEAST(x.first_due, x.first_expired)), 0)),
        'ages', COALESCE(to_jsonb(x.ages), '[]'),
        -- Created and due; and those whose time came: scheduled, retried, redriven. Each over the last tick, two ticks, 20 and 60 seconds.
        'arrivals', jsonb_build_object('tick', snapshot.tick, 'created', to_jsonb(x.fresh), 'again', to_jsonb(x.again), 'estimated', x.guessed OR x.estimated),
        'attempts', jsonb_build_object('window', 30 * 1.25 ^ COALESCE(t.start, 15), 'finished', COALESCE(e.spans, '[]'),
                                       'running', COALESCE(u.spans, '[]'), 'failed', COALESCE(e.failed, 0), 'lately', COALESCE(g.span, '[0, 0]')),
        'in_flight', x.in_flight, 'expired', x.expired, 'longest_running', x.longest,
        'lease_expirations', COALESCE((SELECT y.expirations FROM __SCHEMA__.tally y WHERE y.class_id = c.id), 0),
        'dead', (SELECT count(*) FROM (SELECT 1 FROM __SCHEMA__.outcome o WHERE o.status = 'x' AND o.class_id = c.id LIMIT 10000) y),
        'oldest_dead_age', GREATEST(0, COALESCE(extract(epoch FROM moment - (
           SELECT min(o.finished_at) FROM __SCHEMA__.outcome o WHERE o.status = 'x' AND o.class_id = c.id)), 0)),
        'memory', (SELECT m.memory FROM __SCHEMA__.memory m WHERE m.class_id = c.id),
        'sleepers', (SELECT count(*) FROM __SCHEMA__.sleeper s WHERE s.class_id = c.id)) ORDER BY c.name)
        FROM __SCHEMA__.class c JOIN due x ON x.class_id = c.id LEFT JOIN __SCHEMA__.downstream d ON d.id = c.downstream_id
        LEFT JOIN reach t ON t.class_id = c.id LEFT JOIN finished e ON e.class_id = c.id LEFT JOIN unfinished u ON u.class_id = c.id
        LEFT JOIN late g ON g.class_id = c.id), '[]'),
    'workers', COALESCE((
      SELECT jsonb_agg(jsonb_build_object('id', w.id, 'name', w.name, 'class', c.name, 'state', w.state, 'slots', w.slots, 'units', w.units,
          'registered_at', extract(epoch FROM w.registered_at), 'seen_age', GREATEST(0, extract(epoch FROM moment - w.seen_at)),
          'admitted_at', extract(epoch FROM w.admitted_at), 'ready_at', extract(epoch FROM w.ready_at),
          'in_flight', COALESCE(h.jobs, 0), 'elapsed', COALESCE(h.seconds, 0), 'info', w.info) ORDER BY w.id)
        FROM __SCHEMA__.worker w JOIN __SCHEMA__.class c ON c.id = w.class_id LEFT JOIN held h ON h.worker_id = w.id WHERE w.state <> 'gone'), '[]'),
    'downstreams', COALESCE((
      SELECT jsonb_agg(jsonb_build_object('downstream', d.name, 'limit', d.unit_limit,
          'in_use', COALESCE((SELECT sum(l.units) FROM __SCHEMA__.lease l WHERE l.downstream_id = d.id), 0)
                  + COALESCE((SELECT sum(w.units) FROM __SCHEMA__.worker w JOIN __SCHEMA__.class c ON c.id = w.class_id
                               WHERE c.downstream_id = d.id AND w.state IN ('active', 'retired')), 0)) ORDER BY d.name)
        FROM __SCHEMA__.downstream d), '[]'),
    'database', jsonb_build_object(
      'epoch', (SELECT l.epoch FROM __SCHEMA__.leader l), 'leader', (SELECT l.holder FROM __SCHEMA__.leader l),
      -- What ordinary users can open; the second setting is there since PostgreSQL 16.
      'connections', current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
                   - COALESCE(current_setting('reserved_connections', true), '0')::integer,
      'oldest_transaction_age', COALESCE((SELECT extract(epoch FROM moment - a.xact_start) FROM pg_stat_activity a
          WHERE a.datname = current_database() AND a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid() ORDER BY a.xact_start LIMIT 1), 0),
      'oldest_transaction_pid', (SELECT a.pid FROM pg_stat_activity a
          WHERE a.datname = current_database() AND a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid() ORDER BY a.xact_start LIMIT 1),
      'dead_tuples', (SELECT jsonb_object_agg(t.name, pg_stat_get_dead_tuples(('__SCHEMA__.' || t.name)::regclass)) FROM unnest('{ready,lease}'::text[]) AS t(name)),
      'table_bytes', (SELECT jsonb_object_agg(t.name, COALESCE((SELECT sum(pg_total_relation_size(p.relid)) FROM pg_partition_tree(('__SCHEMA__.' || t.name)::regclass) p),
                          pg_total_relation_size(('__SCHEMA__.' || t.name)::regclass)))
                        FROM unnest('{body,outcome,attempt,ready,lease,effect,idempotency}'::text[]) AS t(name)),
      'notify_queue_usage', pg_notification_queue_usage()))
    INTO answer;
  RETURN answer;
END
$$;

REVOKE ALL ON FUNCTION
  __SCHEMA__.first_ids(timestamptz[]), __SCHEMA__.created(timestamptz, timestamptz[], bigint[], boolean), __SCHEMA__.backlog(timestamptz, timestamptz[], bigint[]),
  __SCHEMA__.length_step(double precision), __SCHEMA__.start_step(double precision), __SCHEMA__.ended(timestamptz, timestamptz), __SCHEMA__.snapshot(double precision)
FROM PUBLIC;
GRANT EXECUTE ON FUNCTION __SCHEMA__.snapshot(double precision) TO __OPERATOR__, __READER__, __SUPPORT__;
