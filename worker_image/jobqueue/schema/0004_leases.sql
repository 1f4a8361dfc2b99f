-- What the holder of a lease may do. Every write names its token and is refused when that is not the current one, or when
-- the lease's time is over (swept or not): the clock is read after the row is locked.

CREATE FUNCTION __SCHEMA__.refuse_stale(id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  RAISE EXCEPTION 'token: the lease on job % is not yours any more', refuse_stale.id
    USING ERRCODE = 'JQ001', HINT = 'it expired, was given to another worker, or the job has ended; stop, and write nothing for it';
END
$$;

-- Text that can be stored whatever it holds: bounded. (PostgreSQL itself refuses NUL and invalid encoding in text.)
CREATE FUNCTION __SCHEMA__.bounded(value text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT left(value, 2000) $$;

-- Let the first waiting jobs of a concurrency key back into the claim's way, because a lease on it has ended.
CREATE FUNCTION __SCHEMA__.unpark(class_id smallint, key_hash integer, most integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
  places tid[];
BEGIN
  places := ARRAY(SELECT r.ctid FROM __SCHEMA__.ready r
                   WHERE r.class_id = unpark.class_id AND r.key_hash = unpark.key_hash AND r.lane < -1
                   ORDER BY r.priority DESC, r.run_after, r.id LIMIT most FOR UPDATE SKIP LOCKED);
  UPDATE __SCHEMA__.ready r SET lane = __SCHEMA__.tenant_lane(r.tenant_hash) WHERE r.ctid = ANY (places);
  RETURN cardinality(places);
END
$$;

CREATE FUNCTION __SCHEMA__.extend(worker bigint, ids bigint[], tokens bigint[], lease interval DEFAULT NULL)
RETURNS TABLE (id bigint, leased_until timestamptz, cancel boolean, result text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  span interval := COALESCE(extend.lease, (SELECT c.lease FROM __SCHEMA__.worker w JOIN __SCHEMA__.class c ON c.id = w.class_id WHERE w.id = extend.worker));
BEGIN
  IF extend.lease IS NOT NULL AND extend.lease NOT BETWEEN '100 milliseconds' AND '1 day' THEN
    RAISE EXCEPTION 'lease: % is outside 100ms..1d', extend.lease USING ERRCODE = 'JQ003';
  END IF;
  RETURN QUERY
    WITH given AS MATERIALIZED (
      SELECT g.id, g.token FROM unnest(ids, tokens) AS g(id, token) ORDER BY g.id
    ), held AS MATERIALIZED (
      SELECT l.id FROM given g JOIN __SCHEMA__.lease l ON l.id = g.id
       WHERE l.token = g.token AND l.worker_id = extend.worker FOR NO KEY UPDATE OF l SKIP LOCKED
    ), done AS (
      UPDATE __SCHEMA__.lease l SET leased_until = clock_timestamp() + span
        FROM held h WHERE l.id = h.id AND l.leased_until > clock_timestamp()
      RETURNING l.id, l.leased_until, l.cancel
    )
    SELECT g.id, d.leased_until, COALESCE(d.cancel, false),
           CASE WHEN d.id IS NOT NULL THEN 'extended'
                WHEN EXISTS (SELECT FROM __SCHEMA__.lease l
                              WHERE l.id = g.id AND l.token = g.token AND l.worker_id = extend.worker AND l.leased_until > clock_timestamp())
                THEN 'busy' ELSE 'stale' END
      FROM given g LEFT JOIN done d ON d.id = g.id;
END
$$;

CREATE FUNCTION __SCHEMA__.heartbeat(worker bigint) RETURNS TABLE (state text, paused boolean, cancel bigint[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
    UPDATE __SCHEMA__.worker w SET seen_at = clock_timestamp() FROM __SCHEMA__.class c
     WHERE w.id = heartbeat.worker AND w.state <> 'gone' AND c.id = w.class_id
    RETURNING w.state, c.paused,
      ARRAY(SELECT l.id FROM __SCHEMA__.lease l WHERE l.worker_id = heartbeat.worker AND l.cancel ORDER BY l.id);
  IF NOT FOUND THEN
    RETURN QUERY SELECT 'unknown', false, '{}'::bigint[];
  END IF;
END
$$;

-- The end of a claim that found no lease: 'already' when this very token ended the job or the attempt that way before. A
-- loss that the sweep declared was nobody's answer (its error says nothing else): the first word about it is stale.
CREATE FUNCTION __SCHEMA__.ended_already(id bigint, token bigint, as_outcomes text[]) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
  SELECT EXISTS (SELECT FROM __SCHEMA__.outcome o WHERE o.id = ended_already.id AND o.token = ended_already.token
                    AND (o.reason, o.last_error) IS DISTINCT FROM ('worker lost', 'worker lost')
                    AND CASE o.status WHEN 'd' THEN 'done' WHEN 'x' THEN 'dead' ELSE 'cancelled' END = ANY (as_outcomes))
      OR EXISTS (SELECT FROM __SCHEMA__.attempt a WHERE a.job_id = ended_already.id AND a.token = ended_already.token
                    AND a.outcome = ANY (as_outcomes) AND (a.reason, a.error) IS DISTINCT FROM ('worker lost', 'worker lost'))
$$;

CREATE FUNCTION __SCHEMA__.complete_many(ids bigint[], tokens bigint[]) RETURNS TABLE (id bigint, result text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  finished  bigint[];
  late      boolean;
  classes   smallint[];
  freed     integer[];
  f         record;
  patient   boolean := false;
BEGIN
  LOOP
    BEGIN
      IF patient THEN
        PERFORM l.id FROM (SELECT x.id FROM unnest(ids) AS x(id) ORDER BY x.id) g JOIN __SCHEMA__.lease l ON l.id = g.id
          ORDER BY l.id FOR UPDATE OF l;
      END IF;
      WITH given AS MATERIALIZED (
        SELECT g.id, g.token FROM unnest(ids, tokens) AS g(id, token) ORDER BY g.id
      ), gone AS (
        DELETE FROM __SCHEMA__.lease l USING given g WHERE l.id = g.id AND l.token = g.token AND l.leased_until > clock_timestamp()
        RETURNING l.id, l.token, l.worker_id, l.started_at, l.class_id, l.attempts, l.refunds, l.budget, l.key_hash,
                  l.leased_until <= clock_timestamp() AS late
      ), kept AS (
        INSERT INTO __SCHEMA__.outcome (id, token, worker_id, started_at, finished_at, class_id, attempts, refunds, budget, status)
        SELECT g.id, g.token, g.worker_id, g.started_at, clock_timestamp(), g.class_id, g.attempts, g.refunds, g.budget, 'd' FROM gone g
      )
      SELECT array_agg(g.id), bool_or(g.late), array_agg(g.class_id) FILTER (WHERE g.key_hash <> 0), array_agg(g.key_hash) FILTER (WHERE g.key_hash <> 0)
        INTO finished, late, classes, freed FROM gone g;
      -- A row lock that was waited for may have outlived the lease: undo, and read the clock under the locks.
      IF late AND NOT patient THEN RAISE EXCEPTION USING ERRCODE = 'JQ900', MESSAGE = 'a lease ended while its row was waited for'; END IF;
      EXIT;
    EXCEPTION WHEN SQLSTATE 'JQ900' THEN
      patient := true;
    END;
  END LOOP;
  IF freed IS NOT NULL THEN
    FOR f IN SELECT x.class_id, x.key_hash, count(*)::integer AS n FROM unnest(classes, freed) AS x(class_id, key_hash) GROUP BY 1, 2 ORDER BY 1, 2 LOOP
      PERFORM __SCHEMA__.unpark(f.class_id, f.key_hash, f.n);
    END LOOP;
  END IF;
  IF cardinality(finished) = cardinality(ids) THEN
    RETURN QUERY SELECT x, 'done' FROM unnest(ids) AS x;
  ELSE
    RETURN QUERY SELECT g.id, CASE WHEN g.id = ANY (COALESCE(finished, '{}')) THEN 'done'
                                   WHEN __SCHEMA__.ended_already(g.id, g.token, '{done}') THEN 'already' ELSE 'stale' END
                   FROM unnest(ids, tokens) AS g(id, token);
  END IF;
END
$$;

CREATE FUNCTION __SCHEMA__.complete(id bigint, token bigint) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  answer text;
BEGIN
  SELECT r.result INTO answer FROM __SCHEMA__.complete_many(ARRAY[complete.id], ARRAY[complete.token]) r;
  IF answer = 'stale' THEN PERFORM __SCHEMA__.refuse_stale(complete.id); END IF;
  RETURN answer;
END
$$;

-- The lease's row, locked, or null when it is not the caller's any more.
CREATE FUNCTION __SCHEMA__.own(id bigint, token bigint) RETURNS __SCHEMA__.lease
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
  l __SCHEMA__.lease;
BEGIN
  SELECT x.* INTO l FROM __SCHEMA__.lease x WHERE x.id = own.id AND x.token = own.token FOR UPDATE;
  IF l.leased_until > clock_timestamp() THEN RETURN l; END IF;
  RETURN NULL;
END
$$;

-- End an attempt without success. `how`: retry, lost, released or snoozed bring the job back to ready at `due`; when the
-- attempts are used up (and the outcome spends one), or the job is cancelled or dead, it ends. Returns what became of it.
CREATE FUNCTION __SCHEMA__.put_back(l __SCHEMA__.lease, how text, due timestamptz, why text, error text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
  b       record;
  moment  timestamptz := clock_timestamp();
  refund  boolean := how IN ('released', 'snoozed') AND l.refunds < 10;
  final   text;
  state   text := NULL;
BEGIN
  SELECT x.max_attempts, x.kind, x.version, x.priority INTO b FROM __SCHEMA__.body x WHERE x.id = l.id;
  DELETE FROM __SCHEMA__.lease x WHERE x.id = l.id;
  IF how IN ('dead', 'cancelled') THEN final := how;
  ELSIF l.cancel THEN final := 'cancelled';
  ELSIF NOT refund AND l.attempts >= b.max_attempts THEN final := 'dead';
  END IF;
  IF final IS NOT NULL THEN
    INSERT INTO __SCHEMA__.outcome (id, token, worker_id, started_at, finished_at, class_id, attempts, refunds, budget, status, reason, last_error)
    VALUES (l.id, l.token, l.worker_id, l.started_at, moment, l.class_id, l.attempts, l.refunds, l.budget,
            CASE final WHEN 'dead' THEN 'x' ELSE 'c' END,
            __SCHEMA__.bounded(CASE WHEN how = 'lost' AND final = 'dead' THEN 'worker lost'
                                    WHEN final = 'dead' AND how <> 'dead' THEN 'attempts used up'
                                    ELSE COALESCE(why, final) END),
            __SCHEMA__.bounded(error));
  ELSE
    INSERT INTO __SCHEMA__.attempt (job_id, token, worker_id, started_at, finished_at, number, budget, outcome, reason, error)
    VALUES (l.id, l.token, l.worker_id, l.started_at, moment, l.attempts, l.budget, how, __SCHEMA__.bounded(why), __SCHEMA__.bounded(error));
    INSERT INTO __SCHEMA__.ready (id, run_after, lane, kind_version, class_id, priority, tenant_hash, key_hash, attempts, refunds, budget)
    VALUES (l.id, due, CASE WHEN how = 'lost' OR (l.suspect AND how IN ('released', 'snoozed')) THEN -1 ELSE __SCHEMA__.tenant_lane(l.tenant_hash) END,
            __SCHEMA__.kind_version(b.kind, b.version), l.class_id, b.priority, l.tenant_hash, l.key_hash,
            l.attempts - refund::integer, l.refunds + refund::integer, l.budget);
    IF due <= moment AND EXISTS (SELECT FROM __SCHEMA__.sleeper s WHERE s.class_id = l.class_id) THEN
      PERFORM pg_notify(__CHANNEL__, 'class:' || c.name) FROM __SCHEMA__.class c WHERE c.id = l.class_id;
    END IF;
    state := CASE WHEN how IN ('released', 'snoozed') AND NOT refund THEN 'spent' ELSE how END;
  END IF;
  IF l.key_hash <> 0 THEN PERFORM __SCHEMA__.unpark(l.class_id, l.key_hash, 1); END IF;
  RETURN COALESCE(final, state);
END
$$;

CREATE FUNCTION __SCHEMA__.fail_many(
  ids bigint[], tokens bigint[], errors text[], outcomes text[], retry_afters interval[], reasons text[]
) RETURNS TABLE (id bigint, result text, run_after timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
  g    record;
  l    __SCHEMA__.lease;
  due  timestamptz;
BEGIN
  FOR g IN SELECT * FROM unnest(ids, tokens, errors, outcomes, retry_afters, reasons)
                      AS u(id, token, error, outcome, retry_after, reason) ORDER BY u.id LOOP
    IF g.outcome NOT IN ('retry', 'dead', 'cancelled') THEN
      RAISE EXCEPTION 'outcome: % is none of retry, dead, cancelled', quote_nullable(g.outcome) USING ERRCODE = 'JQ003';
    END IF;
    IF g.retry_after < '0' OR g.retry_after > '365 days' THEN
      RAISE EXCEPTION 'retry_after: % is outside 0..365 days', g.retry_after USING ERRCODE = 'JQ003';
    END IF;
    l := __SCHEMA__.own(g.id, g.token);
    id := g.id;
    run_after := NULL;
    IF l.id IS NULL THEN
      result := CASE WHEN __SCHEMA__.ended_already(g.id, g.token, '{retry,lost,dead,cancelled}') THEN 'already' ELSE 'stale' END;
    ELSE
      SELECT clock_timestamp() + COALESCE(g.retry_after, __SCHEMA__.backoff(l.attempts, c.backoff_initial, c.backoff_factor, c.backoff_max))
        INTO due FROM __SCHEMA__.class c WHERE c.id = l.class_id;
      -- Its own process died under it and its worker lives to say so: lost all the same, and suspect.
      result := __SCHEMA__.put_back(l, CASE WHEN COALESCE(g.outcome, 'retry') = 'retry' AND g.reason = 'worker lost' THEN 'lost'
                                            ELSE COALESCE(g.outcome, 'retry') END, due, g.reason, g.error);
      IF result = 'lost' THEN result := 'retry'; END IF;
      IF result = 'retry' THEN run_after := due; END IF;
    END IF;
    RETURN NEXT;
  END LOOP;
END
$$;

CREATE FUNCTION __SCHEMA__.fail(
  id bigint, token bigint, error text, outcome text DEFAULT 'retry', retry_after interval DEFAULT NULL, reason text DEFAULT NULL
) RETURNS TABLE (result text, run_after timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
  SELECT r.result, r.run_after INTO result, run_after
    FROM __SCHEMA__.fail_many(ARRAY[fail.id], ARRAY[fail.token], ARRAY[fail.error], ARRAY[fail.outcome], ARRAY[fail.retry_after], ARRAY[fail.reason]) r;
  IF result = 'stale' THEN PERFORM __SCHEMA__.refuse_stale(fail.id); END IF;
  RETURN NEXT;
END
$$;

-- Give back: the attempt is refunded, at most ten times a budget; after that a release spends it.
CREATE FUNCTION __SCHEMA__.release_many(ids bigint[], tokens bigint[], reason text) RETURNS TABLE (id bigint, result text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
  g  record;
  l  __SCHEMA__.lease;
BEGIN
  FOR g IN SELECT * FROM unnest(ids, tokens) AS u(id, token) ORDER BY u.id LOOP
    l := __SCHEMA__.own(g.id, g.token);
    id := g.id;
    IF l.id IS NULL THEN
      result := CASE WHEN __SCHEMA__.ended_already(g.id, g.token, '{released,dead,cancelled}') THEN 'already' ELSE 'stale' END;
    ELSE
      result := __SCHEMA__.put_back(l, 'released', l.due_at, release_many.reason, NULL);
    END IF;
    RETURN NEXT;
  END LOOP;
END
$$;

CREATE FUNCTION __SCHEMA__.release(id bigint, token bigint, reason text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  answer text;
BEGIN
  SELECT r.result INTO answer FROM __SCHEMA__.release_many(ARRAY[release.id], ARRAY[release.token], release.reason) r;
  IF answer = 'stale' THEN PERFORM __SCHEMA__.refuse_stale(release.id); END IF;
  RETURN answer;
END
$$;

CREATE FUNCTION __SCHEMA__.snooze_many(ids bigint[], tokens bigint[], untils timestamptz[]) RETURNS TABLE (id bigint, result text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
  g  record;
  l  __SCHEMA__.lease;
BEGIN
  FOR g IN SELECT * FROM unnest(ids, tokens, untils) AS u(id, token, until) ORDER BY u.id LOOP
    IF g.until IS NULL OR g.until NOT BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z' THEN
      RAISE EXCEPTION 'until: must lie between the years 1970 and 9000' USING ERRCODE = 'JQ003';
    END IF;
    l := __SCHEMA__.own(g.id, g.token);
    id := g.id;
    IF l.id IS NULL THEN
      result := CASE WHEN __SCHEMA__.ended_already(g.id, g.token, '{snoozed,dead,cancelled}') THEN 'already' ELSE 'stale' END;
    ELSE
      result := __SCHEMA__.put_back(l, 'snoozed', g.until, NULL, NULL);
    END IF;
    RETURN NEXT;
  END LOOP;
END
$$;

CREATE FUNCTION __SCHEMA__.snooze(id bigint, token bigint, until timestamptz) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  answer text;
BEGIN
  SELECT r.result INTO answer FROM __SCHEMA__.snooze_many(ARRAY[snooze.id], ARRAY[snooze.token], ARRAY[snooze.until]) r;
  IF answer = 'stale' THEN PERFORM __SCHEMA__.refuse_stale(snooze.id); END IF;
  RETURN answer;
END
$$;

-- Hold the lease against the sweep until this transaction ends, and see that it is still the caller's. FOR KEY SHARE, so
-- that heartbeats go on meanwhile.
CREATE FUNCTION __SCHEMA__.hold(id bigint, token bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
  until timestamptz;
BEGIN
  SELECT l.leased_until INTO until FROM __SCHEMA__.lease l WHERE l.id = hold.id AND l.token = hold.token FOR KEY SHARE;
  IF until IS NULL OR until <= clock_timestamp() THEN PERFORM __SCHEMA__.refuse_stale(hold.id); END IF;
END
$$;

CREATE FUNCTION __SCHEMA__.checkpoint(id bigint, token bigint, state jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
  IF checkpoint.state IS NULL THEN RAISE EXCEPTION 'state: must not be null' USING ERRCODE = 'JQ003'; END IF;
  IF jsonb_path_exists(checkpoint.state, 'strict $.** ? (@ >= 1e1000 || @ <= -1e1000)', silent => true) THEN
    RAISE EXCEPTION 'state: has a number of more than 1000 digits; pass it as text' USING ERRCODE = 'JQ003';
  END IF;
  IF jsonb_path_exists(checkpoint.state, 'strict $.**{65}', silent => true) THEN
    RAISE EXCEPTION 'state: nested more than 64 levels deep; flatten it' USING ERRCODE = 'JQ003';
  END IF;
  IF octet_length(checkpoint.state::text) > 262144 THEN
    RAISE EXCEPTION 'state: more than 262144 bytes; store the data and checkpoint a reference to it' USING ERRCODE = 'JQ003';
  END IF;
  PERFORM __SCHEMA__.hold(checkpoint.id, checkpoint.token);
  INSERT INTO __SCHEMA__.checkpoint AS c VALUES (checkpoint.id, checkpoint.state) ON CONFLICT (id) DO UPDATE SET state = excluded.state;
END
$$;

-- True the first time a key is recorded, anywhere in this schema; false when it was recorded before: skip the effect.
CREATE FUNCTION __SCHEMA__.effect(id bigint, token bigint, key text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
  IF effect.key IS NULL OR effect.key = '' OR length(effect.key) > 512 THEN
    RAISE EXCEPTION 'key: an effect key has 1 to 512 characters' USING ERRCODE = 'JQ003';
  END IF;
  PERFORM __SCHEMA__.hold(effect.id, effect.token);
  INSERT INTO __SCHEMA__.effect (key, job_id, recorded_at) VALUES (effect.key, effect.id, clock_timestamp()) ON CONFLICT (key) DO NOTHING;
  IF FOUND THEN
    -- A twin's uncommitted key may have been waited for, and the lease may have ended meanwhile.
    PERFORM __SCHEMA__.hold(effect.id, effect.token);
    RETURN true;
  END IF;
  RETURN false;
END
$$;

-- After a lost connection: no claim up to `request` will be carried out any more (one still running is waited for), and the
-- leases whose tokens the worker does not know are given back, refunded. Returns how many.
CREATE FUNCTION __SCHEMA__.recover(worker bigint, request bigint, known bigint[]) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  l __SCHEMA__.lease;
  n integer := 0;
BEGIN
  UPDATE __SCHEMA__.worker w SET request_floor = GREATEST(w.request_floor, recover.request), seen_at = clock_timestamp()
   WHERE w.id = recover.worker AND w.state <> 'gone';
  IF NOT FOUND THEN
    RAISE EXCEPTION 'worker: % is not registered', recover.worker USING ERRCODE = 'JQ006', HINT = 'register it again before it claims';
  END IF;
  FOR l IN SELECT x.* FROM __SCHEMA__.lease x WHERE x.worker_id = recover.worker AND NOT (x.token = ANY (known)) AND x.leased_until > clock_timestamp()
            ORDER BY x.id FOR UPDATE LOOP
    PERFORM __SCHEMA__.put_back(l, 'released', l.due_at, 'reconnected', NULL);
    n := n + 1;
  END LOOP;
  RETURN n;
END
$$;
