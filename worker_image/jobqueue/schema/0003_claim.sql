-- Claim: moves due rows from ready to lease, under a fresh token each, at most one worker a row.

-- Move locked ready rows to lease; returns their ids. Row addresses are safe here: a ready row is updated only by a holder of
-- its lock.
CREATE FUNCTION __SCHEMA__.lease_out(cls __SCHEMA__.class, worker bigint, places tid[], moment timestamptz, until timestamptz)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  ids bigint[];
BEGIN
  WITH gone AS (DELETE FROM __SCHEMA__.ready r WHERE r.ctid = ANY (places) RETURNING r.*),
  leased AS (
    INSERT INTO __SCHEMA__.lease (id, token, leased_until, started_at, due_at, worker_id, downstream_id, tenant_hash, key_hash,
                                  class_id, units, attempts, refunds, budget, suspect, cancel)
    SELECT g.id, __SCHEMA__.new_token(), until, moment, g.run_after, worker, cls.downstream_id, g.tenant_hash, g.key_hash,
           g.class_id, cls.units_per_job, g.attempts + 1, g.refunds, g.budget, g.lane = -1, false FROM gone g
    RETURNING id)
  SELECT array_agg(l.id) INTO ids FROM leased l;
  RETURN ids;
END
$$;

-- Take up to `quota` due rows of one (class, priority, kind-version, lane), oldest first; returns the ids that are leased
-- now. Rows whose concurrency key is in use are parked out of the claim's way (each at most once a wait), so that a
-- million of them behind one busy key cost the next claim nothing.
CREATE FUNCTION __SCHEMA__.take(
  cls __SCHEMA__.class, worker bigint, at_priority smallint, of_kind integer, in_lane bigint, moment timestamptz,
  floor timestamptz, until timestamptz, quota integer
) RETURNS bigint[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  places  tid[];
  keyed   integer;
  got     bigint[] := '{}';
  k       record;
  free    integer;
  ok      tid[];
  rounds  integer := 0;
  keys    integer := 0;
  width   integer := quota;
BEGIN
  LOOP
    SELECT array_agg(p.ctid), count(*) FILTER (WHERE p.key_hash <> 0) INTO places, keyed
      FROM (SELECT r.ctid, r.key_hash FROM __SCHEMA__.ready r
             WHERE r.class_id = cls.id AND r.priority = at_priority AND r.kind_version = of_kind AND r.lane = in_lane
               AND r.run_after >= floor AND r.run_after <= moment
             ORDER BY r.run_after, r.id LIMIT width FOR UPDATE SKIP LOCKED) p;
    EXIT WHEN places IS NULL;
    ok := places;
    IF keyed > 0 OR cardinality(places) > quota - cardinality(got) THEN
      ok := ARRAY(SELECT r.ctid FROM __SCHEMA__.ready r WHERE r.ctid = ANY (places) AND r.key_hash = 0
                   ORDER BY r.run_after, r.id LIMIT quota - cardinality(got));
      FOR k IN
        SELECT r.key_hash, array_agg(r.ctid ORDER BY r.run_after, r.id) AS rows, min(r.run_after) AS first
          FROM __SCHEMA__.ready r WHERE r.ctid = ANY (places) AND r.key_hash <> 0 GROUP BY r.key_hash ORDER BY first LIMIT 64
      LOOP
        -- Whoever counts a key's leases holds its lock until commit, so that two claims cannot both see it free.
        CONTINUE WHEN NOT pg_try_advisory_xact_lock(__LOCK__ + cls.id, k.key_hash);
        SELECT cls.key_limit - count(*) INTO free FROM __SCHEMA__.lease l WHERE l.class_id = cls.id AND l.key_hash = k.key_hash;
        free := GREATEST(free, 0);
        keys := keys + 1;
        ok := ok || k.rows[1:LEAST(free, quota - cardinality(got) - cardinality(ok))];
        UPDATE __SCHEMA__.ready r SET lane = __SCHEMA__.parked_lane(r.key_hash) WHERE r.ctid = ANY (k.rows[free + 1:]);
      END LOOP;
    END IF;
    IF cardinality(ok) > 0 THEN
      got := got || __SCHEMA__.lease_out(cls, worker, ok, moment, until);
    END IF;
    rounds := rounds + 1;
    -- A wider look, now that rows were parked: there may be thousands behind the same key.
    width := GREATEST(quota - cardinality(got), 500);
    -- Only parked rows make another round worth while. Bounded: each key takes one of the server's shared locks.
    EXIT WHEN keyed = 0 OR keys >= 128 OR cardinality(got) >= quota OR cardinality(ok) = cardinality(places) OR rounds >= 16;
  END LOOP;
  RETURN got;
END
$$;

CREATE FUNCTION __SCHEMA__.claim(
  class text, worker bigint, request bigint, max_jobs integer, lease interval, kinds text[], versions integer[],
  floor timestamptz DEFAULT NULL
) RETURNS TABLE (
  id bigint, job_class text, kind text, version integer, payload jsonb, attempt integer, max_attempts integer, token bigint,
  leased_until timestamptz, correlation_id text, actor_id text, tenant text, trace_context jsonb, checkpoint jsonb,
  enqueued_at timestamptz, due_at timestamptz, suspect boolean
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_nestloop = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  cls      __SCHEMA__.class;
  me       record;
  lanes    integer[];
  moment   timestamptz := clock_timestamp();
  until    timestamptz;
  since    timestamptz := COALESCE(claim.floor, '-infinity');
  left_    integer := claim.max_jobs;
  got      bigint[] := '{}';
  batch     bigint[];
  place    tid;
  prio     smallint;
  share    record;
  of_kind  integer;
  at_lane  bigint;
  start    bigint;
  head     record;
  wrapped  boolean;
  quota    integer;
  probes   integer;
  pass     integer;
  before   integer;
  lowest   bigint;
  some_due boolean;
  highest  bigint;
BEGIN
  IF claim.max_jobs IS NULL OR claim.max_jobs NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'max_jobs: % is outside 1..10000', claim.max_jobs USING ERRCODE = 'JQ003';
  END IF;
  IF claim.lease IS NOT NULL AND claim.lease NOT BETWEEN '100 milliseconds' AND '1 day' THEN
    RAISE EXCEPTION 'lease: % is outside 100ms..1d', claim.lease USING ERRCODE = 'JQ003';
  END IF;
  SELECT c.* INTO cls FROM __SCHEMA__.class c WHERE c.name = claim.class;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'class: there is no class %', quote_nullable(left(claim.class, 100))
      USING ERRCODE = 'JQ002', HINT = 'register it: jobqueue migrate --class NAME, or --manifest FILE';
  END IF;
  -- FOR SHARE: retiring the worker waits for this claim, and no claim follows it.
  SELECT w.state, w.request_floor, w.lanes, w.class_id INTO me FROM __SCHEMA__.worker w WHERE w.id = claim.worker FOR SHARE;
  IF NOT FOUND OR me.state <> 'active' OR me.class_id <> cls.id THEN
    RAISE EXCEPTION 'worker: % is %', claim.worker,
      CASE WHEN me.state IS NULL THEN 'not registered' WHEN me.class_id <> cls.id THEN 'registered for another class'
           WHEN me.state = 'waiting' THEN 'not admitted under its downstream''s limit yet' ELSE me.state END
      USING ERRCODE = 'JQ006', HINT = 'register it again before it claims';
  END IF;
  IF claim.request <= me.request_floor THEN
    RAISE EXCEPTION 'request: % was fenced off by a recovery at %', claim.request, me.request_floor USING ERRCODE = 'JQ006';
  END IF;
  IF cls.paused THEN RETURN; END IF;
  lanes := CASE WHEN claim.kinds IS NULL THEN me.lanes
                ELSE ARRAY(SELECT DISTINCT __SCHEMA__.kind_version(k.kind, k.version) FROM unnest(claim.kinds, claim.versions) AS k(kind, version)) END;
  IF cardinality(lanes) = 0 THEN RETURN; END IF;

  IF cls.downstream_id IS NOT NULL THEN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
      RAISE EXCEPTION 'transaction: a claim under a downstream limit must run READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
        USING ERRCODE = 'JQ003', HINT = 'a snapshot taken before the lock would count too few leases';
    END IF;
    PERFORM FROM __SCHEMA__.downstream d WHERE d.id = cls.downstream_id FOR NO KEY UPDATE;
    -- A later statement than the lock, so that it sees what the last holder committed. Expired leases count until swept.
    left_ := LEAST(left_, __SCHEMA__.free_units(cls.downstream_id) / cls.units_per_job);
    IF left_ <= 0 THEN RETURN; END IF;
    moment := clock_timestamp();
  END IF;
  until := moment + COALESCE(claim.lease, cls.lease);

  -- A suspect (its last worker vanished) runs alone. Every other claim looks for one first, so that neither starves.
  IF claim.request % 2 = 0 THEN
    got := __SCHEMA__.take_suspect(cls, claim.worker, lanes, moment, until);
  END IF;

  IF cardinality(got) = 0 THEN
    LOOP
      SELECT r.priority INTO prio FROM __SCHEMA__.ready r
       WHERE r.class_id = cls.id AND r.priority < COALESCE(prio, 32767::smallint) ORDER BY r.priority DESC LIMIT 1;
      EXIT WHEN NOT FOUND;

      IF cardinality(lanes) = 1 THEN
        batch := __SCHEMA__.take(cls, claim.worker, prio, lanes[1], 0, moment, since, until, left_);
        got := got || batch;
        left_ := left_ - cardinality(batch);
      ELSE
        -- Several kinds: how many of each belong to the oldest `left_` of all, then that many of each.
        FOR pass IN 1..2 LOOP
          some_due := false;
          FOR share IN
            SELECT h.kind_version, count(*)::integer AS n
              FROM (SELECT l.kind_version, x.run_after
                      FROM unnest(lanes) AS l(kind_version)
                     CROSS JOIN LATERAL (
                       SELECT r.run_after FROM __SCHEMA__.ready r
                        WHERE r.class_id = cls.id AND r.priority = prio AND r.kind_version = l.kind_version AND r.lane = 0
                          AND r.run_after >= since AND r.run_after <= moment
                        ORDER BY r.run_after, r.id LIMIT left_) x
                     ORDER BY x.run_after LIMIT left_) h
             GROUP BY h.kind_version
          LOOP
            some_due := true;
            batch := __SCHEMA__.take(cls, claim.worker, prio, share.kind_version, 0, moment, since, until, share.n);
            got := got || batch;
            left_ := left_ - cardinality(batch);
          END LOOP;
          -- What was counted may have been parked behind its key since: the others get their turn.
          EXIT WHEN left_ <= 0 OR NOT some_due;
        END LOOP;
      END IF;

      -- Tenants take turns: from a random point of the ring, an eighth of the claim each, until it is full or nobody has more.
      IF cls.fair_tenants AND left_ > 0 THEN
        pass := 1;
        WHILE pass <= 16 AND left_ > 0 LOOP
          before := left_;
          FOREACH of_kind IN ARRAY lanes LOOP
            start := floor(random() * 4294967296)::bigint;
            at_lane := start;
            wrapped := false;
            probes := 0;
            WHILE left_ > 0 AND probes < 1024 LOOP
              probes := probes + 1;
              SELECT r.lane, r.run_after, r.tenant_hash INTO head FROM __SCHEMA__.ready r
               WHERE r.class_id = cls.id AND r.priority = prio AND r.kind_version = of_kind AND r.lane > at_lane
               ORDER BY r.lane, r.run_after LIMIT 1;
              IF NOT FOUND OR (wrapped AND head.lane > start) THEN
                EXIT WHEN wrapped;
                wrapped := true;
                at_lane := 0;
                CONTINUE;
              END IF;
              at_lane := head.lane;
              CONTINUE WHEN head.run_after > moment;
              quota := LEAST(left_, GREATEST(1, claim.max_jobs / 8));
              IF cls.tenant_limit IS NOT NULL THEN
                CONTINUE WHEN NOT pg_try_advisory_xact_lock(__LOCK__ - 1 - cls.id, head.tenant_hash);
                SELECT LEAST(quota, cls.tenant_limit - count(*)) INTO quota FROM __SCHEMA__.lease l
                 WHERE l.class_id = cls.id AND l.tenant_hash = head.tenant_hash;
                CONTINUE WHEN quota <= 0;
              END IF;
              batch := __SCHEMA__.take(cls, claim.worker, prio, of_kind, head.lane, moment, '-infinity', until, quota);
              got := got || batch;
              left_ := left_ - cardinality(batch);
            END LOOP;
          END LOOP;
          EXIT WHEN left_ = before;
          pass := pass + 1;
        END LOOP;
      END IF;
      EXIT WHEN left_ <= 0;
    END LOOP;
    IF cardinality(got) = 0 AND claim.request % 2 <> 0 THEN
      got := __SCHEMA__.take_suspect(cls, claim.worker, lanes, moment, until);
    END IF;
  END IF;
  IF cardinality(got) = 0 THEN RETURN; END IF;

  -- All bodies in one scan, bounded by range, so that only the partitions in question are opened, and once.
  SELECT min(g), max(g) INTO lowest, highest FROM unnest(got) AS g;
  RETURN QUERY
    SELECT l.id, cls.name, b.kind, b.version, b.payload, l.attempts::integer, b.max_attempts::integer, l.token, l.leased_until,
           b.correlation_id, b.actor_id, b.tenant, b.trace_context,
           CASE WHEN l.attempts > 1 OR l.refunds > 0 OR l.budget > 0
                THEN (SELECT c.state FROM __SCHEMA__.checkpoint c WHERE c.id = l.id) END,
           b.created_at, l.due_at, l.suspect
      FROM __SCHEMA__.lease l
      JOIN (SELECT * FROM __SCHEMA__.body y WHERE y.id = ANY (got) AND y.id >= lowest AND y.id <= highest OFFSET 0) b ON b.id = l.id
     WHERE l.id = ANY (got)
     ORDER BY b.priority DESC, l.due_at, l.id;
END
$$;

CREATE FUNCTION __SCHEMA__.take_suspect(cls __SCHEMA__.class, worker bigint, lanes integer[], moment timestamptz, until timestamptz)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  one   record;
  used  bigint;
BEGIN
  -- One at a time for each worker: what takes the whole worker down with it then takes no other suspect.
  IF EXISTS (SELECT FROM __SCHEMA__.lease l WHERE l.worker_id = take_suspect.worker AND l.suspect) THEN RETURN '{}'; END IF;
  FOR one IN
    SELECT r.ctid, r.key_hash, r.tenant_hash FROM __SCHEMA__.ready r
     WHERE r.lane = -1 AND r.class_id = cls.id AND r.run_after <= moment AND r.kind_version = ANY (lanes)
     ORDER BY r.run_after, r.id LIMIT 32 FOR UPDATE SKIP LOCKED
  LOOP
    IF one.key_hash <> 0 THEN
      CONTINUE WHEN NOT pg_try_advisory_xact_lock(__LOCK__ + cls.id, one.key_hash);
      SELECT count(*) INTO used FROM __SCHEMA__.lease l WHERE l.class_id = cls.id AND l.key_hash = one.key_hash;
      CONTINUE WHEN used >= cls.key_limit;
    END IF;
    IF one.tenant_hash <> 0 AND cls.tenant_limit IS NOT NULL THEN
      CONTINUE WHEN NOT pg_try_advisory_xact_lock(__LOCK__ - 1 - cls.id, one.tenant_hash);
      SELECT count(*) INTO used FROM __SCHEMA__.lease l WHERE l.class_id = cls.id AND l.tenant_hash = one.tenant_hash;
      CONTINUE WHEN used >= cls.tenant_limit;
    END IF;
    RETURN __SCHEMA__.lease_out(cls, worker, ARRAY[one.ctid], moment, until);
  END LOOP;
  RETURN '{}';
END
$$;

-- What workers may still take of a downstream for themselves: one job's units always remain, or all would be admitted and
-- none could ever claim.
CREATE FUNCTION __SCHEMA__.worker_room(downstream integer) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
  SELECT d.unit_limit
    - COALESCE((SELECT max(c.units_per_job) FROM __SCHEMA__.class c WHERE c.downstream_id = d.id), 0)
    - COALESCE((SELECT sum(w.units) FROM __SCHEMA__.worker w JOIN __SCHEMA__.class c ON c.id = w.class_id
                 WHERE c.downstream_id = d.id AND w.state IN ('active', 'retired')), 0)
    FROM __SCHEMA__.downstream d WHERE d.id = worker_room.downstream
$$;

-- The worker whose turn it is to be admitted: of those that wait, fit and were heard of lately, the first.
CREATE FUNCTION __SCHEMA__.next_admitted(downstream integer) RETURNS TABLE (worker bigint, units integer)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
  SELECT w.id, w.units FROM __SCHEMA__.worker w JOIN __SCHEMA__.class c ON c.id = w.class_id
   WHERE c.downstream_id = next_admitted.downstream AND w.state = 'waiting' AND w.units <= __SCHEMA__.worker_room(next_admitted.downstream)
     AND w.seen_at > clock_timestamp() - interval '1 minute'
   ORDER BY w.id LIMIT 1
$$;

-- Units of a downstream that nothing holds. The caller holds the downstream's row lock. The worker whose turn it is to be
-- admitted has its units kept free, or running jobs would never let it in.
CREATE FUNCTION __SCHEMA__.free_units(downstream integer) RETURNS integer
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
  SELECT (d.unit_limit
    - COALESCE((SELECT sum(l.units) FROM __SCHEMA__.lease l WHERE l.downstream_id = d.id), 0)
    - COALESCE((SELECT sum(w.units) FROM __SCHEMA__.worker w JOIN __SCHEMA__.class c ON c.id = w.class_id
                 WHERE c.downstream_id = d.id AND w.state IN ('active', 'retired')), 0)
    - COALESCE((SELECT n.units FROM __SCHEMA__.next_admitted(d.id) n), 0))::integer
    FROM __SCHEMA__.downstream d WHERE d.id = free_units.downstream
$$;
