-- Reading: two views for people, one call for machines.

-- One branch a status, so that a filter on the status reads only where such jobs are.
CREATE VIEW __SCHEMA__.jobs AS
SELECT b.id, c.name AS class, b.kind, b.version, 'pending'::text AS status, r.attempts::integer AS attempts,
       b.max_attempts::integer AS max_attempts, b.priority::integer AS priority, r.run_after AS run_after, NULL::timestamptz AS leased_until,
       b.key, b.tenant, b.concurrency_key, b.actor_id, b.correlation_id, (SELECT a.error FROM __SCHEMA__.attempt a WHERE a.job_id = b.id AND a.error IS NOT NULL ORDER BY a.finished_at DESC LIMIT 1) AS last_error, NULL::text AS reason,
       b.created_at, NULL::timestamptz AS started_at, NULL::timestamptz AS finished_at, b.payload
  FROM __SCHEMA__.ready r JOIN __SCHEMA__.body b ON b.id = r.id JOIN __SCHEMA__.class c ON c.id = b.class_id
UNION ALL
SELECT b.id, c.name AS class, b.kind, b.version, 'running'::text AS status, l.attempts::integer AS attempts,
       b.max_attempts::integer AS max_attempts, b.priority::integer AS priority, l.due_at AS run_after, l.leased_until AS leased_until,
       b.key, b.tenant, b.concurrency_key, b.actor_id, b.correlation_id, (SELECT a.error FROM __SCHEMA__.attempt a WHERE a.job_id = b.id AND a.error IS NOT NULL ORDER BY a.finished_at DESC LIMIT 1) AS last_error, NULL::text AS reason,
       b.created_at, l.started_at AS started_at, NULL::timestamptz AS finished_at, b.payload
  FROM __SCHEMA__.lease l JOIN __SCHEMA__.body b ON b.id = l.id JOIN __SCHEMA__.class c ON c.id = b.class_id
UNION ALL
SELECT b.id, c.name AS class, b.kind, b.version, 'done'::text AS status, o.attempts::integer AS attempts,
       b.max_attempts::integer AS max_attempts, b.priority::integer AS priority, NULL::timestamptz AS run_after, NULL::timestamptz AS leased_until,
       b.key, b.tenant, b.concurrency_key, b.actor_id, b.correlation_id, o.last_error AS last_error, o.reason AS reason,
       b.created_at, o.started_at AS started_at, o.finished_at AS finished_at, b.payload
  FROM __SCHEMA__.outcome o JOIN __SCHEMA__.body b ON b.id = o.id JOIN __SCHEMA__.class c ON c.id = b.class_id
 WHERE o.status = 'd'
UNION ALL
SELECT b.id, c.name AS class, b.kind, b.version, 'dead'::text AS status, o.attempts::integer AS attempts,
       b.max_attempts::integer AS max_attempts, b.priority::integer AS priority, NULL::timestamptz AS run_after, NULL::timestamptz AS leased_until,
       b.key, b.tenant, b.concurrency_key, b.actor_id, b.correlation_id, o.last_error AS last_error, o.reason AS reason,
       b.created_at, o.started_at AS started_at, o.finished_at AS finished_at, b.payload
  FROM __SCHEMA__.outcome o JOIN __SCHEMA__.body b ON b.id = o.id JOIN __SCHEMA__.class c ON c.id = b.class_id
 WHERE o.status = 'x'
UNION ALL
SELECT b.id, c.name AS class, b.kind, b.version, 'cancelled'::text AS status, o.attempts::integer AS attempts,
       b.max_attempts::integer AS max_attempts, b.priority::integer AS priority, NULL::timestamptz AS run_after, NULL::timestamptz AS leased_until,
       b.key, b.tenant, b.concurrency_key, b.actor_id, b.correlation_id, o.last_error AS last_error, o.reason AS reason,
       b.created_at, o.started_at AS started_at, o.finished_at AS finished_at, b.payload
  FROM __SCHEMA__.outcome o JOIN __SCHEMA__.body b ON b.id = o.id JOIN __SCHEMA__.class c ON c.id = b.class_id
 WHERE o.status = 'c';
COMMENT ON VIEW __SCHEMA__.jobs IS 'What is pending, what failed, what we already did: one row a job.';

CREATE VIEW __SCHEMA__.attempts AS
SELECT x.job_id, x.budget, x.number, x.token, COALESCE(w.name, '#' || x.worker_id) AS worker, x.started_at, x.finished_at, x.outcome, x.reason, x.error
  FROM (SELECT a.job_id, a.budget::integer, a.number::integer, a.token, a.worker_id, a.started_at, a.finished_at, a.outcome, a.reason, a.error
          FROM __SCHEMA__.attempt a
         UNION ALL
        SELECT o.id, o.budget::integer, o.attempts::integer, o.token, o.worker_id, o.started_at, o.finished_at,
               CASE o.status WHEN 'd' THEN 'done' WHEN 'x' THEN CASE o.reason WHEN 'worker lost' THEN 'lost' ELSE 'dead' END ELSE 'cancelled' END,
               o.reason, o.last_error
          FROM __SCHEMA__.outcome o WHERE o.token IS NOT NULL
         UNION ALL
        SELECT l.id, l.budget::integer, l.attempts::integer, l.token, l.worker_id, l.started_at, NULL, 'running', NULL, NULL
          FROM __SCHEMA__.lease l) x
  LEFT JOIN __SCHEMA__.worker w ON w.id = x.worker_id;
COMMENT ON VIEW __SCHEMA__.attempts IS 'Every attempt of every job, the running ones included.';

CREATE VIEW __SCHEMA__.workers AS
SELECT w.id, w.name, c.name AS class, w.state, w.slots, w.units, w.kinds, w.registered_at, w.seen_at, w.info
  FROM __SCHEMA__.worker w JOIN __SCHEMA__.class c ON c.id = w.class_id WHERE w.state <> 'gone';

-- All facts of all classes in one call. Times are epoch seconds, ages and durations seconds. Above 50,000 waiting rows the
-- counts and quantiles come from a sample of pages (estimated = true); the oldest is exact in any case.
CREATE FUNCTION __SCHEMA__.snapshot() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  moment     timestamptz := clock_timestamp();
  pages      bigint := pg_relation_size('__SCHEMA__.ready') / current_setting('block_size')::integer;
  percent    real := LEAST(100, 100.0 * 700 / GREATEST(pg_relation_size('__SCHEMA__.ready') / current_setting('block_size')::integer, 1));
  estimated  boolean := false;
  waiting    jsonb;
  oldest     jsonb;
  running    jsonb;
  dead       jsonb;
BEGIN
  IF pages > 700 THEN
    -- The pages may be mostly empty (after a burst was worked off): then counting all live rows is cheap after all.
    estimated := (SELECT count(*) > 50000 FROM (SELECT 1 FROM __SCHEMA__.ready LIMIT 50001) x);
  END IF;
  IF NOT estimated THEN percent := 100; END IF;

  SELECT jsonb_object_agg(g.class_id, to_jsonb(g) - 'class_id') INTO waiting FROM (
    SELECT r.class_id,
           round(count(*) FILTER (WHERE r.run_after <= moment) * 100 / percent)::bigint AS ready,
           round(count(*) FILTER (WHERE r.run_after > moment) * 100 / percent)::bigint AS scheduled,
           round(count(*) FILTER (WHERE r.run_after <= moment AND r.lane < -1) * 100 / percent)::bigint AS blocked_key,
           round(count(*) FILTER (WHERE r.run_after <= moment AND r.lane >= -1 AND u.known IS NULL) * 100 / percent)::bigint AS blocked_unsupported,
           round(count(*) FILTER (WHERE r.run_after <= moment AND r.lane > 0 AND u.known AND t.full_ IS NOT NULL) * 100 / percent)::bigint AS blocked_tenant,
           percentile_disc(ARRAY[0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875]) WITHIN GROUP (ORDER BY r.run_after) FILTER (WHERE r.run_after <= moment) AS due
      FROM __SCHEMA__.ready r TABLESAMPLE SYSTEM (percent)
      LEFT JOIN (SELECT DISTINCT w.class_id, x.lane AS kind_version, true AS known FROM __SCHEMA__.worker w, unnest(w.lanes) AS x(lane) WHERE w.state <> 'gone') u
        ON u.class_id = r.class_id AND u.kind_version = r.kind_version
      LEFT JOIN (SELECT l.class_id, l.tenant_hash, true AS full_ FROM __SCHEMA__.lease l JOIN __SCHEMA__.class c ON c.id = l.class_id
                  WHERE l.tenant_hash <> 0 GROUP BY 1, 2, c.tenant_limit HAVING count(*) >= c.tenant_limit) t
        ON t.class_id = r.class_id AND t.tenant_hash = r.tenant_hash AND r.lane > 0
     GROUP BY r.class_id) g;

  -- The first row of every (class, priority, kind and version, lane): a walk over the claim's index.
  SELECT jsonb_object_agg(g.class_id, g.first) INTO oldest FROM (
    WITH RECURSIVE step AS (
      (SELECT r.class_id, r.priority, r.kind_version, r.lane, r.run_after FROM __SCHEMA__.ready r
        ORDER BY r.class_id, r.priority, r.kind_version, r.lane, r.run_after LIMIT 1)
      UNION ALL
      SELECT n.* FROM step s CROSS JOIN LATERAL (
        SELECT r.class_id, r.priority, r.kind_version, r.lane, r.run_after FROM __SCHEMA__.ready r
         WHERE (r.class_id, r.priority, r.kind_version, r.lane) > (s.class_id, s.priority, s.kind_version, s.lane)
         ORDER BY r.class_id, r.priority, r.kind_version, r.lane, r.run_after LIMIT 1) n
    )
    SELECT s.class_id, extract(epoch FROM min(s.run_after)) AS first FROM (SELECT * FROM step LIMIT 20000) s WHERE s.run_after <= moment GROUP BY s.class_id) g;

  SELECT jsonb_object_agg(g.class_id, to_jsonb(g) - 'class_id') INTO running FROM (
    SELECT l.class_id, count(*) FILTER (WHERE l.leased_until > moment) AS in_flight, count(*) FILTER (WHERE l.leased_until <= moment) AS expired,
           extract(epoch FROM min(l.leased_until) FILTER (WHERE l.leased_until <= moment)) AS first_expired,
           max(extract(epoch FROM moment - l.started_at)) FILTER (WHERE l.leased_until > moment) AS longest
      FROM __SCHEMA__.lease l GROUP BY l.class_id) g;

  SELECT jsonb_object_agg(c.id, jsonb_build_object(
           'dead', (SELECT count(*) FROM (SELECT 1 FROM __SCHEMA__.outcome o WHERE o.status = 'x' AND o.class_id = c.id LIMIT 50000) x),
           'oldest', (SELECT extract(epoch FROM min(o.finished_at)) FROM __SCHEMA__.outcome o WHERE o.status = 'x' AND o.class_id = c.id)))
    INTO dead FROM __SCHEMA__.class c;

  RETURN jsonb_build_object(
    'now', extract(epoch FROM moment),
    'classes', COALESCE((
      SELECT jsonb_agg(jsonb_build_object(
        'class', c.name, 'paused', c.paused, 'target_age', extract(epoch FROM c.target_age), 'lease', extract(epoch FROM c.lease),
        'timeout', extract(epoch FROM c.timeout), 'max_attempts', c.max_attempts, 'concurrency', c.concurrency,
        'downstream', d.name, 'units_per_job', c.units_per_job, 'units_per_pod', c.units_per_pod,
        'dead_retention', extract(epoch FROM c.dead_retention), 'estimated', estimated,
        -- A sample may miss the few that are due; the oldest is looked up and cannot be missed.
        'ready', GREATEST(COALESCE((waiting->c.id::text->>'ready')::bigint, 0), (oldest ? c.id::text)::integer) + COALESCE((running->c.id::text->>'expired')::bigint, 0),
        'scheduled', COALESCE((waiting->c.id::text->>'scheduled')::bigint, 0),
        'blocked', jsonb_build_object('unsupported', COALESCE((waiting->c.id::text->>'blocked_unsupported')::bigint, 0),
                                      'key', COALESCE((waiting->c.id::text->>'blocked_key')::bigint, 0),
                                      'tenant', COALESCE((waiting->c.id::text->>'blocked_tenant')::bigint, 0)),
        'oldest_age', GREATEST(0, COALESCE(extract(epoch FROM moment)
           - LEAST((oldest->>(c.id::text))::numeric, (running->c.id::text->>'first_expired')::numeric), 0)),
        'ages', COALESCE((SELECT jsonb_agg(extract(epoch FROM moment - (x.at)::timestamptz) ORDER BY x.ord)
                            FROM jsonb_array_elements_text(NULLIF(waiting->c.id::text->'due', 'null')) WITH ORDINALITY AS x(at, ord)), '[]'),
        'in_flight', COALESCE((running->c.id::text->>'in_flight')::bigint, 0),
        'expired', COALESCE((running->c.id::text->>'expired')::bigint, 0),
        'longest_running', COALESCE((running->c.id::text->>'longest')::numeric, 0),
        'lease_expirations', COALESCE((SELECT t.expirations FROM __SCHEMA__.tally t WHERE t.class_id = c.id), 0),
        'dead', (dead->c.id::text->>'dead')::bigint,
        'oldest_dead_age', GREATEST(0, COALESCE(extract(epoch FROM moment) - (dead->c.id::text->>'oldest')::numeric, 0)),
        'sleepers', (SELECT count(*) FROM __SCHEMA__.sleeper s WHERE s.class_id = c.id)) ORDER BY c.name)
        FROM __SCHEMA__.class c LEFT JOIN __SCHEMA__.downstream d ON d.id = c.downstream_id), '[]'),
    'workers', COALESCE((
      SELECT jsonb_agg(jsonb_build_object('id', w.id, 'name', w.name, 'class', c.name, 'state', w.state, 'slots', w.slots, 'units', w.units,
          'registered_at', extract(epoch FROM w.registered_at), 'seen_age', GREATEST(0, extract(epoch FROM moment - w.seen_at)),
          'in_flight', (SELECT count(*) FROM __SCHEMA__.lease l WHERE l.worker_id = w.id), 'info', w.info) ORDER BY w.id)
        FROM __SCHEMA__.worker w JOIN __SCHEMA__.class c ON c.id = w.class_id WHERE w.state <> 'gone'), '[]'),
    'downstreams', COALESCE((
      SELECT jsonb_agg(jsonb_build_object('downstream', d.name, 'limit', d.unit_limit,
          'in_use', COALESCE((SELECT sum(l.units) FROM __SCHEMA__.lease l WHERE l.downstream_id = d.id), 0)
                  + COALESCE((SELECT sum(w.units) FROM __SCHEMA__.worker w JOIN __SCHEMA__.class c ON c.id = w.class_id
                               WHERE c.downstream_id = d.id AND w.state IN ('active', 'retired')), 0)) ORDER BY d.name)
        FROM __SCHEMA__.downstream d), '[]'),
    'database', jsonb_build_object(
      'epoch', (SELECT l.epoch FROM __SCHEMA__.leader l), 'leader', (SELECT l.holder FROM __SCHEMA__.leader l),
      'oldest_transaction_age', COALESCE((SELECT extract(epoch FROM moment - a.xact_start) FROM pg_stat_activity a
          WHERE a.datname = current_database() AND a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid() ORDER BY a.xact_start LIMIT 1), 0),
      'oldest_transaction_pid', (SELECT a.pid FROM pg_stat_activity a
          WHERE a.datname = current_database() AND a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid() ORDER BY a.xact_start LIMIT 1),
      'dead_tuples', (SELECT jsonb_object_agg(t.name, pg_stat_get_dead_tuples(('__SCHEMA__.' || t.name)::regclass)) FROM unnest('{ready,lease}'::text[]) AS t(name)),
      'table_bytes', (SELECT jsonb_object_agg(t.name, COALESCE((SELECT sum(pg_total_relation_size(p.relid)) FROM pg_partition_tree(('__SCHEMA__.' || t.name)::regclass) p),
                          pg_total_relation_size(('__SCHEMA__.' || t.name)::regclass)))
                        FROM unnest('{body,outcome,attempt,ready,lease,effect,idempotency}'::text[]) AS t(name)),
      'notify_queue_usage', pg_notification_queue_usage()));
END
$$;
