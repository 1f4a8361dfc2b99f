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
  held       jsonb;
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
  SELECT jsonb_object_agg(g.worker_id, to_jsonb(g) - 'worker_id') INTO held FROM (
    SELECT l.worker_id, count(*) AS jobs, sum(GREATEST(0, extract(epoch FROM moment - l.started_at))) AS elapsed
      FROM __SCHEMA__.lease l GROUP BY l.worker_id) g;

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
        'memory', (SELECT m.memory FROM __SCHEMA__.memory m WHERE m.class_id = c.id),
        'sleepers', (SELECT count(*) FROM __SCHEMA__.sleeper s WHERE s.class_id = c.id)) ORDER BY c.name)
        FROM __SCHEMA__.class c LEFT JOIN __SCHEMA__.downstream d ON d.id = c.downstream_id), '[]'),
    'workers', COALESCE((
      SELECT jsonb_agg(jsonb_build_object('id', w.id, 'name', w.name, 'class', c.name, 'state', w.state, 'slots', w.slots, 'units', w.units,
          'registered_at', extract(epoch FROM w.registered_at), 'seen_age', GREATEST(0, extract(epoch FROM moment - w.seen_at)),
          'admitted_at', extract(epoch FROM w.admitted_at), 'ready_at', extract(epoch FROM w.ready_at),
          'in_flight', COALESCE((held->w.id::text->>'jobs')::bigint, 0), 'elapsed', COALESCE((held->w.id::text->>'elapsed')::numeric, 0),
          'info', w.info) ORDER BY w.id)
        FROM __SCHEMA__.worker w JOIN __SCHEMA__.class c ON c.id = w.class_id WHERE w.state <> 'gone'), '[]'),
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
      'notify_queue_usage', pg_notification_queue_usage()));
END
$$;

REVOKE ALL ON FUNCTION __SCHEMA__.snapshot() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION __SCHEMA__.snapshot() TO __OPERATOR__, __READER__, __SUPPORT__;
