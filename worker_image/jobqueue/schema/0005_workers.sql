-- Workers, and what operators set: classes, downstreams, pauses, retirements.

-- End a worker. What it still holds counts as lost: the attempts are spent, and each job next runs alone. A worker that
-- leaves cleanly releases everything first.
CREATE FUNCTION __SCHEMA__.forget_worker(worker bigint) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  held  __SCHEMA__.lease[];
  l     __SCHEMA__.lease;
BEGIN
  -- First, so that a claim still under way is waited for and none follows.
  UPDATE __SCHEMA__.worker w SET state = 'gone', seen_at = clock_timestamp() WHERE w.id = forget_worker.worker;
  DELETE FROM __SCHEMA__.sleeper s WHERE s.worker_id = forget_worker.worker;
  held := ARRAY(SELECT x FROM __SCHEMA__.lease x WHERE x.worker_id = forget_worker.worker ORDER BY x.id FOR UPDATE);
  FOREACH l IN ARRAY held LOOP
    PERFORM __SCHEMA__.lose(l);
  END LOOP;
  PERFORM __SCHEMA__.count_losses(ARRAY(SELECT h.class_id FROM unnest(held) AS h));
  RETURN cardinality(held);
END
$$;

-- An attempt whose worker vanished: spent, and the job marked suspect.
CREATE FUNCTION __SCHEMA__.lose(l __SCHEMA__.lease) RETURNS text
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$ SELECT __SCHEMA__.put_back(l, 'lost', LEAST(l.leased_until, clock_timestamp()), 'worker lost', 'worker lost') $$;

-- Once at the end of a transaction, in the order of the classes: the counters' rows are the same for everybody.
CREATE FUNCTION __SCHEMA__.count_losses(classes smallint[]) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
  INSERT INTO __SCHEMA__.tally AS t (class_id, expirations)
  SELECT c.id, count(*) FROM unnest(classes) AS c(id) GROUP BY c.id ORDER BY c.id
  ON CONFLICT (class_id) DO UPDATE SET expirations = t.expirations + excluded.expirations
$$;

CREATE FUNCTION __SCHEMA__.sleeping(worker bigint, class text, asleep boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  cls smallint := (SELECT c.id FROM __SCHEMA__.class c WHERE c.name = sleeping.class);
BEGIN
  IF asleep THEN
    INSERT INTO __SCHEMA__.sleeper SELECT cls, sleeping.worker WHERE cls IS NOT NULL ON CONFLICT DO NOTHING;
  ELSE
    DELETE FROM __SCHEMA__.sleeper s WHERE s.class_id = cls AND s.worker_id = sleeping.worker;
  END IF;
END
$$;

-- A new leader's epoch in this database. What a former leader still tries to set is refused.
CREATE FUNCTION __SCHEMA__.lead(holder text) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ UPDATE __SCHEMA__.leader SET epoch = epoch + 1, holder = left(lead.holder, 253), since = clock_timestamp() RETURNING epoch $$;

-- Null is an administrator's word, outside any leadership.
CREATE FUNCTION __SCHEMA__.check_epoch(epoch bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  current record;
BEGIN
  IF check_epoch.epoch IS NULL THEN RETURN; END IF;
  SELECT l.epoch, l.holder INTO current FROM __SCHEMA__.leader l FOR SHARE;
  IF check_epoch.epoch <> current.epoch THEN
    RAISE EXCEPTION 'epoch: % is over, % leads this database with epoch %', check_epoch.epoch, quote_literal(current.holder), current.epoch
      USING ERRCODE = 'JQ007', HINT = 'stop acting; call lead() only after winning the election again';
  END IF;
END
$$;

CREATE FUNCTION __SCHEMA__.set_downstream(epoch bigint, name text, unit_limit integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
  PERFORM __SCHEMA__.check_epoch(set_downstream.epoch);
  IF COALESCE(length(set_downstream.name), 0) NOT BETWEEN 1 AND 253 THEN
    RAISE EXCEPTION 'name: must have 1 to 253 characters' USING ERRCODE = 'JQ003';
  END IF;
  IF set_downstream.unit_limit IS NULL OR set_downstream.unit_limit < 0 THEN
    RAISE EXCEPTION 'unit_limit: must be 0 or more, not %', set_downstream.unit_limit USING ERRCODE = 'JQ003';
  END IF;
  INSERT INTO __SCHEMA__.downstream AS d (name, unit_limit) VALUES (set_downstream.name, set_downstream.unit_limit)
  ON CONFLICT (name) DO UPDATE SET unit_limit = excluded.unit_limit WHERE d.unit_limit <> excluded.unit_limit;
END
$$;

CREATE FUNCTION __SCHEMA__.set_paused(epoch bigint, class text, paused boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
  PERFORM __SCHEMA__.check_epoch(set_paused.epoch);
  UPDATE __SCHEMA__.class c SET paused = set_paused.paused WHERE c.name = set_paused.class;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'class: there is no class %', quote_nullable(left(set_paused.class, 100)) USING ERRCODE = 'JQ002';
  END IF;
END
$$;

-- Register a class, or change the settings that are named; the others keep their values (defaults for a new class).
CREATE FUNCTION __SCHEMA__.set_class(epoch bigint, name text, settings jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  known    text[] := '{lease_seconds,timeout_seconds,max_attempts,backoff_initial_seconds,backoff_factor,backoff_max_seconds,concurrency,fair_tenants,tenant_limit,key_limit,downstream,units_per_job,units_per_pod,target_age_seconds,done_retention_seconds,dead_retention_seconds,paused}';
  bad      record;
  c        __SCHEMA__.class;
  problem  text;
BEGIN
  PERFORM __SCHEMA__.check_epoch(set_class.epoch);
  IF set_class.name IS NULL OR set_class.name !~ '^[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?$' THEN
    RAISE EXCEPTION 'name: % is not a class name', quote_nullable(left(set_class.name, 100))
      USING ERRCODE = 'JQ003', HINT = 'use 1 to 63 lower-case letters, digits and - _ . inside';
  END IF;
  IF jsonb_typeof(settings) IS DISTINCT FROM 'object' THEN
    RAISE EXCEPTION 'settings: must be an object' USING ERRCODE = 'JQ003';
  END IF;
  SELECT e.key, jsonb_typeof(e.value) AS is, e.value INTO bad FROM jsonb_each(settings) AS e
   WHERE NOT (e.key = ANY (known))
      OR jsonb_typeof(e.value) <> CASE WHEN e.key IN ('fair_tenants', 'paused') THEN 'boolean' WHEN e.key = 'downstream' THEN 'string' ELSE 'number' END
         AND NOT (e.key IN ('tenant_limit', 'downstream') AND jsonb_typeof(e.value) = 'null')
      OR e.key LIKE '%\_seconds' AND (e.value#>>'{}')::numeric NOT BETWEEN 0 AND 315360000
      OR e.key IN ('max_attempts', 'concurrency', 'tenant_limit', 'key_limit', 'units_per_job', 'units_per_pod')
         AND jsonb_typeof(e.value) = 'number' AND ((e.value#>>'{}')::numeric NOT BETWEEN 0 AND 1000000 OR (e.value#>>'{}')::numeric % 1 <> 0)
   ORDER BY e.key LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION '%', CASE WHEN bad.key = ANY (known) THEN format('%s: %s is not a value it can take', bad.key, left(bad.value::text, 100))
                              ELSE format('%s: there is no such setting', left(bad.key, 100)) END
      USING ERRCODE = 'JQ003', HINT = 'known settings: ' || array_to_string(known, ', ');
  END IF;
  INSERT INTO __SCHEMA__.class (name) VALUES (set_class.name) ON CONFLICT (name) DO NOTHING;
  SELECT x.* INTO c FROM __SCHEMA__.class x WHERE x.name = set_class.name FOR UPDATE;
  c.lease := COALESCE(make_interval(secs => (settings->>'lease_seconds')::double precision), c.lease);
  c.timeout := COALESCE(make_interval(secs => (settings->>'timeout_seconds')::double precision), c.timeout);
  c.max_attempts := COALESCE((settings->>'max_attempts')::integer, c.max_attempts);
  c.backoff_initial := COALESCE(make_interval(secs => (settings->>'backoff_initial_seconds')::double precision), c.backoff_initial);
  c.backoff_factor := COALESCE((settings->>'backoff_factor')::double precision, c.backoff_factor);
  c.backoff_max := COALESCE(make_interval(secs => (settings->>'backoff_max_seconds')::double precision), c.backoff_max);
  c.concurrency := COALESCE((settings->>'concurrency')::integer, c.concurrency);
  c.fair_tenants := COALESCE((settings->>'fair_tenants')::boolean, c.fair_tenants);
  IF settings ? 'tenant_limit' THEN c.tenant_limit := (settings->>'tenant_limit')::integer; END IF;
  c.key_limit := COALESCE((settings->>'key_limit')::integer, c.key_limit);
  IF settings ? 'downstream' THEN
    c.downstream_id := (SELECT d.id FROM __SCHEMA__.downstream d WHERE d.name = settings->>'downstream');
    IF c.downstream_id IS NULL AND settings->>'downstream' IS NOT NULL THEN
      RAISE EXCEPTION 'downstream: there is no downstream %', quote_literal(left(settings->>'downstream', 100))
        USING ERRCODE = 'JQ009', HINT = 'register it with set_downstream first';
    END IF;
  END IF;
  c.units_per_job := COALESCE((settings->>'units_per_job')::integer, c.units_per_job);
  c.units_per_pod := COALESCE((settings->>'units_per_pod')::integer, c.units_per_pod);
  c.target_age := COALESCE(make_interval(secs => (settings->>'target_age_seconds')::double precision), c.target_age);
  c.done_retention := COALESCE(make_interval(secs => (settings->>'done_retention_seconds')::double precision), c.done_retention);
  c.dead_retention := COALESCE(make_interval(secs => (settings->>'dead_retention_seconds')::double precision), c.dead_retention);
  c.paused := COALESCE((settings->>'paused')::boolean, c.paused);
  problem := CASE
    WHEN c.lease NOT BETWEEN '100 milliseconds' AND '1 day' THEN 'lease_seconds: must be between 0.1 and 86400'
    WHEN c.timeout <= '0' OR c.timeout > '7 days' THEN 'timeout_seconds: must be above 0 and at most 604800'
    WHEN c.max_attempts NOT BETWEEN 1 AND 1000 THEN 'max_attempts: must be between 1 and 1000'
    WHEN c.backoff_initial <= '0' THEN 'backoff_initial_seconds: must be above 0'
    WHEN c.backoff_factor NOT BETWEEN 1 AND 100 THEN 'backoff_factor: must be between 1 and 100'
    WHEN c.backoff_max < c.backoff_initial OR c.backoff_max > '30 days' THEN 'backoff_max_seconds: must be at least backoff_initial_seconds and at most 2592000'
    WHEN c.concurrency NOT BETWEEN 1 AND 10000 THEN 'concurrency: must be between 1 and 10000'
    WHEN c.tenant_limit < 1 THEN 'tenant_limit: must be at least 1, or null for none'
    WHEN c.key_limit < 1 THEN 'key_limit: must be at least 1'
    WHEN c.units_per_job NOT BETWEEN 1 AND 32767 THEN 'units_per_job: must be between 1 and 32767'
    WHEN c.units_per_pod NOT BETWEEN 0 AND 32767 THEN 'units_per_pod: must be between 0 and 32767'
    WHEN c.target_age <= '0' THEN 'target_age_seconds: must be above 0'
    WHEN (SELECT d.unit_limit FROM __SCHEMA__.downstream d WHERE d.id = c.downstream_id) BETWEEN 1 AND c.units_per_job + c.units_per_pod - 1
      THEN format('units_per_job: one worker with one job takes %s units, more than the downstream''s limit', c.units_per_job + c.units_per_pod)
  END;
  IF problem IS NOT NULL THEN RAISE EXCEPTION '%', problem USING ERRCODE = 'JQ003'; END IF;
  UPDATE __SCHEMA__.class x SET (lease, timeout, max_attempts, backoff_initial, backoff_factor, backoff_max, concurrency, fair_tenants, tenant_limit,
      key_limit, downstream_id, units_per_job, units_per_pod, target_age, done_retention, dead_retention, paused)
    = (c.lease, c.timeout, c.max_attempts, c.backoff_initial, c.backoff_factor, c.backoff_max, c.concurrency, c.fair_tenants, c.tenant_limit,
      c.key_limit, c.downstream_id, c.units_per_job, c.units_per_pod, c.target_age, c.done_retention, c.dead_retention, c.paused)
   WHERE x.id = c.id AND x IS DISTINCT FROM c;
END
$$;

-- Fence workers for scale-in: after this commits they claim nothing, so that what they hold can be trusted.
CREATE FUNCTION __SCHEMA__.retire_worker(epoch bigint, workers bigint[]) RETURNS TABLE (worker bigint, in_flight integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
  PERFORM __SCHEMA__.check_epoch(retire_worker.epoch);
  PERFORM FROM __SCHEMA__.worker w WHERE w.id = ANY (workers) ORDER BY w.id FOR UPDATE;
  -- One that waits for admission holds nothing: it simply goes, and would have to be admitted anew.
  UPDATE __SCHEMA__.worker w SET state = CASE w.state WHEN 'active' THEN 'retired' ELSE 'gone' END
   WHERE w.id = ANY (workers) AND w.state IN ('active', 'waiting');
  RETURN QUERY SELECT w.id, (SELECT count(*)::integer FROM __SCHEMA__.lease l WHERE l.worker_id = w.id)
                 FROM __SCHEMA__.worker w WHERE w.id = ANY (workers) AND w.state = 'retired' ORDER BY w.id;
END
$$;

CREATE FUNCTION __SCHEMA__.unretire_worker(epoch bigint, workers bigint[]) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM __SCHEMA__.check_epoch(unretire_worker.epoch);
  RETURN QUERY UPDATE __SCHEMA__.worker w SET state = 'active' WHERE w.id = ANY (workers) AND w.state = 'retired' RETURNING w.id;
END
$$;
