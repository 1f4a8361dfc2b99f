-- Kinds and versions on which the workers of a class differ, while jobs of them are queued: in the middle of a rollout, what only the
-- old workers, or only the new ones, understand. Whoever rolls out must leave one that does.

-- Of each, how many jobs wait (due, scheduled or parked; at most 1,000 a priority) or are in flight (of 2,000 leases of a class, those of
-- its oldest workers first, which a drain would put back), and the workers that lack it. At most 20, first what the
-- oldest workers understand. Where all workers of every class understand the same, one look at the workers is all.
CREATE FUNCTION __SCHEMA__.contested() RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  split smallint[] := ARRAY(SELECT w.class_id FROM __SCHEMA__.worker w WHERE w.state <> 'gone' AND w.state = 'active' AND w.kinds <> '{}'
                             GROUP BY w.class_id HAVING min(w.kinds) <> max(w.kinds));
BEGIN
  IF split = '{}' THEN RETURN '[]'; END IF;
  RETURN (
    WITH taught AS MATERIALIZED (
      SELECT w.class_id, w.kinds, array_agg(w.id ORDER BY w.id) AS workers FROM __SCHEMA__.worker w
       WHERE w.state <> 'gone' AND w.state = 'active' AND w.kinds <> '{}' AND w.class_id = ANY (split) GROUP BY 1, 2
    ), named AS MATERIALIZED (
      SELECT n.class_id, n.name, n.first, left(n.name, -n.length) AS kind, right(n.name, n.length - 1)::integer AS version
        FROM (SELECT t.class_id, k.name, min(t.workers[1]) AS first, strpos(reverse(k.name), '@') AS length
                FROM taught t CROSS JOIN LATERAL (SELECT DISTINCT x.name FROM unnest(t.kinds) AS x(name)) k GROUP BY t.class_id, k.name
              HAVING count(*) < (SELECT count(*) FROM taught y WHERE y.class_id = t.class_id) ORDER BY first LIMIT 1000) n
    ), priorities AS MATERIALIZED (
      SELECT s.class_id, p.priority FROM unnest(split) AS s(class_id) CROSS JOIN LATERAL (
        WITH RECURSIVE step AS (
          (SELECT r.priority FROM __SCHEMA__.ready r WHERE r.class_id = s.class_id ORDER BY r.class_id, r.priority LIMIT 1)
          UNION ALL
          SELECT n.priority FROM step z CROSS JOIN LATERAL (
            SELECT r.priority FROM __SCHEMA__.ready r WHERE r.class_id = s.class_id AND r.priority > z.priority ORDER BY r.class_id, r.priority LIMIT 1) n
        ) SELECT step.priority FROM step LIMIT 100) p
    ), running AS MATERIALIZED (
      SELECT l.class_id, b.kind, b.version, count(*) AS jobs
        FROM unnest(split) AS s(class_id)
       CROSS JOIN LATERAL (SELECT x.id, x.class_id FROM __SCHEMA__.lease x WHERE x.class_id = s.class_id ORDER BY x.worker_id LIMIT 2000) l
       CROSS JOIN LATERAL (SELECT y.kind, y.version FROM __SCHEMA__.body y WHERE y.id = l.id OFFSET 0) b
       GROUP BY 1, 2, 3
    ), queued AS (
      SELECT n.*, COALESCE((SELECT g.jobs FROM running g WHERE (g.class_id, g.kind, g.version) = (n.class_id, n.kind, n.version)), 0) + COALESCE((
               SELECT sum(c.jobs) FROM priorities p CROSS JOIN LATERAL (
                 SELECT count(*) AS jobs FROM (
                   SELECT FROM __SCHEMA__.ready r WHERE r.class_id = n.class_id AND r.priority = p.priority
                      AND r.kind_version = __SCHEMA__.kind_version(n.kind, n.version) LIMIT 1000) x) c
                WHERE p.class_id = n.class_id), 0) AS jobs
        FROM named n
    )
    SELECT COALESCE(jsonb_agg(jsonb_build_object('class', c.name, 'kind', q.kind, 'version', q.version, 'jobs', q.jobs, 'lacking', (
             SELECT jsonb_agg(i.id) FROM taught t CROSS JOIN LATERAL unnest(t.workers) AS i(id)
              WHERE t.class_id = q.class_id AND NOT q.name = ANY (t.kinds))) ORDER BY q.first, q.name), '[]')
      FROM (SELECT x.* FROM queued x WHERE x.jobs > 0 ORDER BY x.first, x.name LIMIT 20) q JOIN __SCHEMA__.class c ON c.id = q.class_id);
END
$$;

-- All facts of all classes in one call. Times are epoch seconds, ages and durations seconds. `tick` says how long the caller's
-- rounds are: arrivals are counted over the last one and the one before.
CREATE OR REPLACE FUNCTION __SCHEMA__.snapshot(tick double precision DEFAULT 5) RETURNS jsonb
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
    'versions', __SCHEMA__.contested(),
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

REVOKE ALL ON FUNCTION __SCHEMA__.contested() FROM PUBLIC;
