-- What people do to jobs: cancel, redrive, redact.

CREATE FUNCTION __SCHEMA__.cancel(id bigint) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
  r __SCHEMA__.ready;
BEGIN
  FOR try IN 1..10 LOOP                               -- the job may move between the statements
    DELETE FROM __SCHEMA__.ready x WHERE x.id = cancel.id RETURNING x.* INTO r;
    IF FOUND THEN
      INSERT INTO __SCHEMA__.outcome (id, finished_at, class_id, attempts, refunds, budget, status, reason)
      VALUES (r.id, clock_timestamp(), r.class_id, r.attempts, r.refunds, r.budget, 'c', 'cancelled while pending');
      RETURN 'cancelled';
    END IF;
    UPDATE __SCHEMA__.lease x SET cancel = true WHERE x.id = cancel.id;
    IF FOUND THEN
      PERFORM pg_notify(__CHANNEL__, 'cancel:' || cancel.id);
      RETURN 'requested';
    END IF;
    IF EXISTS (SELECT FROM __SCHEMA__.outcome o WHERE o.id = cancel.id) THEN RETURN 'finished'; END IF;
    IF NOT EXISTS (SELECT FROM __SCHEMA__.body b WHERE b.id = cancel.id) THEN
      RAISE EXCEPTION 'id: there is no job %', cancel.id USING ERRCODE = 'JQ005';
    END IF;
  END LOOP;
  RAISE EXCEPTION 'job % kept moving; try again', cancel.id USING ERRCODE = '40001';
END
$$;

-- One job back to ready with a fresh budget; returns null, or why not.
CREATE FUNCTION __SCHEMA__.redrive_one(id bigint, due timestamptz, force boolean) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
  o  __SCHEMA__.outcome;
  b  record;
BEGIN
  SELECT x.* INTO o FROM __SCHEMA__.outcome x WHERE x.id = redrive_one.id FOR UPDATE;
  IF NOT FOUND THEN
    IF EXISTS (SELECT FROM __SCHEMA__.lease l WHERE l.id = redrive_one.id) THEN RETURN 'running'; END IF;
    IF EXISTS (SELECT FROM __SCHEMA__.ready r WHERE r.id = redrive_one.id) THEN RETURN 'pending'; END IF;
    RETURN 'unknown';
  END IF;
  IF o.status = 'd' AND NOT force THEN RETURN 'done'; END IF;
  SELECT x.kind, x.version, x.priority, x.redacted, x.tenant, x.concurrency_key, c.fair_tenants INTO b
    FROM __SCHEMA__.body x JOIN __SCHEMA__.class c ON c.id = x.class_id WHERE x.id = o.id;
  IF NOT FOUND THEN RETURN 'unknown'; END IF;
  IF b.redacted THEN RETURN 'redacted'; END IF;
  DELETE FROM __SCHEMA__.outcome x WHERE x.id = o.id;
  IF o.token IS NOT NULL THEN
    INSERT INTO __SCHEMA__.attempt (job_id, token, worker_id, started_at, finished_at, number, budget, outcome, reason, error)
    VALUES (o.id, o.token, o.worker_id, o.started_at, o.finished_at, o.attempts, o.budget,
            CASE o.status WHEN 'd' THEN 'done' WHEN 'x' THEN CASE o.reason WHEN 'worker lost' THEN 'lost' ELSE 'dead' END ELSE 'cancelled' END,
            o.reason, o.last_error);
  END IF;
  INSERT INTO __SCHEMA__.ready (id, run_after, lane, kind_version, class_id, priority, tenant_hash, key_hash, attempts, refunds, budget)
  SELECT o.id, due, __SCHEMA__.tenant_lane(t.h), __SCHEMA__.kind_version(b.kind, b.version), o.class_id, b.priority, t.h,
         COALESCE(__SCHEMA__.hash32(b.concurrency_key), 0), 0, 0, o.budget + 1
    FROM (SELECT CASE WHEN b.fair_tenants THEN COALESCE(__SCHEMA__.hash32(b.tenant), 0) ELSE 0 END AS h) t;
  RETURN NULL;
END
$$;

CREATE FUNCTION __SCHEMA__.check_spread(spread interval) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF check_spread.spread IS NULL OR check_spread.spread NOT BETWEEN '0' AND '30 days' THEN
    RAISE EXCEPTION 'spread: must be between 0 and 30 days' USING ERRCODE = 'JQ003';
  END IF;
END
$$;

-- Back to ready with a fresh budget, due at a random moment within `spread`, so that many do not come at once.
CREATE FUNCTION __SCHEMA__.redrive(ids bigint[], spread interval DEFAULT '0', force boolean DEFAULT false) RETURNS TABLE (id bigint, result text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  why text;
BEGIN
  PERFORM __SCHEMA__.check_spread(spread);
  FOR id IN SELECT DISTINCT x FROM unnest(ids) AS x ORDER BY x LOOP
    why := __SCHEMA__.redrive_one(id, clock_timestamp() + random() * spread, force);
    result := COALESCE('skipped: ' || why, 'redriven');
    RETURN NEXT;
  END LOOP;
  PERFORM __SCHEMA__.wake_all();
END
$$;

CREATE FUNCTION __SCHEMA__.wake_all() RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$ SELECT pg_notify(__CHANNEL__, 'class:' || c.name) FROM __SCHEMA__.class c WHERE c.id IN (SELECT s.class_id FROM __SCHEMA__.sleeper s) $$;

CREATE FUNCTION __SCHEMA__.redrive_where(
  class text DEFAULT NULL, kind text DEFAULT NULL, status text DEFAULT 'dead', error_like text DEFAULT NULL,
  finished_after timestamptz DEFAULT NULL, finished_before timestamptz DEFAULT NULL, max_jobs integer DEFAULT 1000,
  spread interval DEFAULT '0', force boolean DEFAULT false
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  job  bigint;
  n    integer := 0;
  code "char" := CASE redrive_where.status WHEN 'dead' THEN 'x' WHEN 'cancelled' THEN 'c' WHEN 'done' THEN 'd' END;
BEGIN
  PERFORM __SCHEMA__.check_spread(spread);
  IF code IS NULL THEN
    RAISE EXCEPTION 'status: % is none of dead, cancelled, done', quote_nullable(redrive_where.status) USING ERRCODE = 'JQ003';
  END IF;
  IF code = 'd' AND NOT force THEN
    RAISE EXCEPTION 'status: done jobs are redriven only by force' USING ERRCODE = 'JQ008';
  END IF;
  IF max_jobs IS NULL OR max_jobs NOT BETWEEN 1 AND 100000 THEN
    RAISE EXCEPTION 'max_jobs: % is outside 1..100000', max_jobs USING ERRCODE = 'JQ003';
  END IF;
  FOR job IN
    SELECT o.id FROM __SCHEMA__.outcome o JOIN __SCHEMA__.body b ON b.id = o.id JOIN __SCHEMA__.class c ON c.id = o.class_id
     WHERE o.status = code AND NOT b.redacted AND (redrive_where.class IS NULL OR c.name = redrive_where.class)
       AND (redrive_where.kind IS NULL OR b.kind = redrive_where.kind)
       AND (error_like IS NULL OR o.last_error LIKE error_like)
       AND (finished_after IS NULL OR o.finished_at >= finished_after) AND (finished_before IS NULL OR o.finished_at < finished_before)
     ORDER BY o.id LIMIT max_jobs
  LOOP
    IF __SCHEMA__.redrive_one(job, clock_timestamp() + random() * spread, force) IS NULL THEN n := n + 1; END IF;
  END LOOP;
  PERFORM __SCHEMA__.wake_all();
  RETURN n;
END
$$;

-- Remove what a job said: payload, trace context, checkpoint, errors. Only after it has ended; it cannot be redriven then.
CREATE FUNCTION __SCHEMA__.redact(ids bigint[]) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
  live bigint;
  n    integer;
BEGIN
  PERFORM FROM __SCHEMA__.outcome o WHERE o.id = ANY (ids) ORDER BY o.id FOR UPDATE;
  SELECT b.id INTO live FROM __SCHEMA__.body b WHERE b.id = ANY (ids) AND NOT EXISTS (SELECT FROM __SCHEMA__.outcome o WHERE o.id = b.id) ORDER BY b.id LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'id: job % has not ended', live USING ERRCODE = 'JQ008', HINT = 'cancel it first, or wait until it has ended';
  END IF;
  UPDATE __SCHEMA__.body b SET payload = '{"redacted": true}', trace_context = NULL, redacted = true WHERE b.id = ANY (ids);
  GET DIAGNOSTICS n = ROW_COUNT;
  -- 'worker lost' is the sweep's own word: it tells nothing, and by it a late acknowledgement is known to be stale.
  UPDATE __SCHEMA__.outcome o SET last_error = NULL WHERE o.id = ANY (ids) AND o.last_error <> 'worker lost';
  UPDATE __SCHEMA__.attempt a SET error = NULL WHERE a.job_id = ANY (ids) AND a.error <> 'worker lost';
  DELETE FROM __SCHEMA__.checkpoint c WHERE c.id = ANY (ids);
  RETURN n;
END
$$;
