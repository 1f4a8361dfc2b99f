-- What keeps the queue healthy: the sweep (about once a second, by any worker) and the maintenance (every few minutes).

-- Take over expired leases. Every row is looked at again under its lock, and a bad one never stops the others.
CREATE FUNCTION __SCHEMA__.sweep(max_jobs integer DEFAULT 1000) RETURNS TABLE (requeued integer, dead integer, cancelled integer, unparked integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  job   bigint;
  l     __SCHEMA__.lease;
  what  text;
  k     record;
  used  integer;
  losses smallint[] := '{}';
BEGIN
  requeued := 0; dead := 0; cancelled := 0; unparked := 0;
  IF max_jobs IS NULL OR max_jobs NOT BETWEEN 1 AND 100000 THEN
    RAISE EXCEPTION 'max_jobs: % is outside 1..100000', max_jobs USING ERRCODE = 'JQ003';
  END IF;
  IF NOT pg_try_advisory_xact_lock(__LOCK__ - 1000000, 1) THEN RETURN NEXT; RETURN; END IF;     -- somebody else sweeps
  FOR job IN SELECT x.id FROM __SCHEMA__.lease x WHERE x.leased_until <= clock_timestamp() ORDER BY x.id LIMIT max_jobs LOOP
    BEGIN
      SELECT x.* INTO l FROM __SCHEMA__.lease x WHERE x.id = job AND x.leased_until <= clock_timestamp() FOR UPDATE SKIP LOCKED;
      CONTINUE WHEN NOT FOUND OR l.leased_until > clock_timestamp();
      what := __SCHEMA__.lose(l);
      losses := losses || l.class_id;
      requeued := requeued + (what = 'lost')::integer;
      dead := dead + (what = 'dead')::integer;
      cancelled := cancelled + (what = 'cancelled')::integer;
    EXCEPTION WHEN OTHERS THEN
      RAISE WARNING 'sweep: job % was left alone: % (%)', job, SQLERRM, SQLSTATE;
    END;
  END LOOP;
  -- A park that raced the end of the key's last lease left nobody to undo it.
  FOR k IN SELECT r.class_id, r.key_hash FROM __SCHEMA__.ready r WHERE r.lane < -1 GROUP BY 1, 2 LIMIT 1000 LOOP
    SELECT count(*) INTO used FROM __SCHEMA__.lease x WHERE x.class_id = k.class_id AND x.key_hash = k.key_hash;
    unparked := unparked + (SELECT __SCHEMA__.unpark(c.id, k.key_hash, GREATEST(c.key_limit - used, 0)) FROM __SCHEMA__.class c WHERE c.id = k.class_id);
  END LOOP;
  -- Sleepers that vanished would have every enqueue notify nobody.
  DELETE FROM __SCHEMA__.sleeper s USING __SCHEMA__.worker w WHERE w.id = s.worker_id AND (w.state = 'gone' OR w.seen_at < clock_timestamp() - interval '10 minutes');
  UPDATE __SCHEMA__.worker w SET state = 'gone' WHERE w.state <> 'gone' AND w.seen_at < clock_timestamp() - interval '10 minutes'
     AND NOT EXISTS (SELECT FROM __SCHEMA__.lease x WHERE x.worker_id = w.id);
  PERFORM __SCHEMA__.count_losses(losses);
  RETURN NEXT;
END
$$;

-- Give a range of ids partitions of its own. Attached, not created in place: that blocks no writer of the parents.
CREATE FUNCTION __SCHEMA__.add_id_range(lower bigint, upper bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  parent text;
  column_ text;
BEGIN
  FOREACH parent IN ARRAY '{body,outcome,attempt}'::text[] LOOP
    column_ := CASE parent WHEN 'attempt' THEN 'job_id' ELSE 'id' END;
    EXECUTE format('CREATE TABLE __SCHEMA__.%I (LIKE __SCHEMA__.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES, CONSTRAINT in_range CHECK (%I >= %s AND %I < %s))',
                   parent || '_' || lower, parent, column_, lower, column_, upper);
    EXECUTE format('ALTER TABLE __SCHEMA__.%I ATTACH PARTITION __SCHEMA__.%I FOR VALUES FROM (%s) TO (%s)', parent, parent || '_' || lower, lower, upper);
    EXECUTE format('ALTER TABLE __SCHEMA__.%I DROP CONSTRAINT in_range', parent || '_' || lower);
  END LOOP;
  INSERT INTO __SCHEMA__.id_range (lower, upper) VALUES (add_id_range.lower, add_id_range.upper);
END
$$;
SELECT __SCHEMA__.add_id_range(0, 1000000);
SELECT __SCHEMA__.add_id_range(1000000, 11000000);

-- Whether the retention of an ended job is over. A job that has not ended is kept for ever.
CREATE FUNCTION __SCHEMA__.is_past(status "char", finished_at timestamptz, class_id smallint, moment timestamptz) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
  SELECT COALESCE(finished_at < moment - (SELECT CASE WHEN status = 'd' THEN c.done_retention ELSE c.dead_retention END
                                            FROM __SCHEMA__.class c WHERE c.id = class_id), false)
$$;

-- Drop the partitions of one range whose jobs are past, moving the rows that must survive to the default partitions.
-- The slow part locks only the old partitions, against writers of jobs that old; the parents are locked for the moment of
-- the exchange, and only if that takes no waiting worth the name.
CREATE FUNCTION __SCHEMA__.drop_id_range(lower bigint, moment timestamptz) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  b  text := format('__SCHEMA__.%I', 'body_' || lower);
  o  text := format('__SCHEMA__.%I', 'outcome_' || lower);
  a  text := format('__SCHEMA__.%I', 'attempt_' || lower);
  kept bigint[];
BEGIN
  SET LOCAL lock_timeout = '100ms';
  EXECUTE format('LOCK TABLE %s, %s, %s IN SHARE ROW EXCLUSIVE MODE', b, o, a);
  EXECUTE format('SELECT array_agg(s.id) FROM (SELECT x.id FROM %s x LEFT JOIN %s y ON y.id = x.id
                   WHERE y.id IS NULL OR NOT __SCHEMA__.is_past(y.status, y.finished_at, y.class_id, $1) LIMIT 10001) s', b, o) INTO kept USING moment;
  IF cardinality(kept) > 10000 THEN RETURN 'kept: more than 10000 of its jobs must survive'; END IF;
  kept := COALESCE(kept, '{}');
  LOCK TABLE __SCHEMA__.body, __SCHEMA__.outcome, __SCHEMA__.attempt IN ACCESS EXCLUSIVE MODE;
  EXECUTE format('ALTER TABLE __SCHEMA__.body DETACH PARTITION %s', b);
  EXECUTE format('ALTER TABLE __SCHEMA__.outcome DETACH PARTITION %s', o);
  EXECUTE format('ALTER TABLE __SCHEMA__.attempt DETACH PARTITION %s', a);
  EXECUTE format('INSERT INTO __SCHEMA__.body SELECT x.* FROM %s x WHERE x.id = ANY ($1)', b) USING kept;
  EXECUTE format('INSERT INTO __SCHEMA__.outcome SELECT x.* FROM %s x WHERE x.id = ANY ($1)', o) USING kept;
  EXECUTE format('INSERT INTO __SCHEMA__.attempt SELECT x.* FROM %s x WHERE x.job_id = ANY ($1)', a) USING kept;
  EXECUTE format('DROP TABLE %s, %s, %s', b, o, a);
  DELETE FROM __SCHEMA__.checkpoint c USING __SCHEMA__.id_range r
   WHERE r.lower = drop_id_range.lower AND c.id >= r.lower AND c.id < r.upper AND NOT (c.id = ANY (kept));
  DELETE FROM __SCHEMA__.id_range r WHERE r.lower = drop_id_range.lower;
  RETURN format('dropped, %s survivors moved', cardinality(kept));
END
$$;

-- Partitions ahead, old rows away, old keys away. Each part stands alone: one that fails is said and tried again next time.
CREATE FUNCTION __SCHEMA__.maintain() RETURNS TABLE (action text, detail text, "rows" bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  moment   timestamptz := clock_timestamp();
  newest   bigint := (SELECT CASE WHEN s.is_called THEN s.last_value ELSE 0 END FROM __SCHEMA__.job_id s);
  top      record;
  width    bigint;
  old      record;
  gone     bigint[];
  growing  bigint;
  reached  bigint;
  seen     bigint;
  more     boolean;
  shortest interval := (SELECT min(LEAST(c.done_retention, c.dead_retention)) FROM __SCHEMA__.class c);
  keep     interval := GREATEST('90 days', (SELECT max(GREATEST(c.done_retention, c.dead_retention)) FROM __SCHEMA__.class c));
BEGIN
  IF NOT pg_try_advisory_xact_lock(__LOCK__ - 1000000, 2) THEN RETURN; END IF;

  UPDATE __SCHEMA__.id_range r SET closed_at = moment WHERE r.closed_at IS NULL AND r.upper <= newest;
  -- Rows past their retention in ranges that still grow, and in the default partitions: a bounded piece each time, on from
  -- where the last one ended. A quiet queue needs no more; a busy one fills ranges, and they are dropped whole.
  growing := COALESCE((SELECT min(r.lower) FROM __SCHEMA__.id_range r WHERE r.closed_at IS NULL), 0);
  SELECT array_agg(w.id) FILTER (WHERE w.past), max(w.id) FILTER (WHERE w.mine), count(*) FILTER (WHERE w.mine),
         COALESCE(bool_or(w.finished_at < moment - shortest) FILTER (WHERE w.mine), false)
    INTO gone, reached, seen, more
    FROM (SELECT x.id, x.mine, x.finished_at, __SCHEMA__.is_past(x.status, x.finished_at, x.class_id, moment) AS past
            FROM ((SELECT o.id, o.status, o.finished_at, o.class_id, true AS mine FROM __SCHEMA__.outcome o
                    WHERE o.id > GREATEST((SELECT u.cursor FROM __SCHEMA__.upkeep u), growing - 1) ORDER BY o.id LIMIT 20000)
                  UNION ALL
                  (SELECT o.id, o.status, o.finished_at, o.class_id, false FROM __SCHEMA__.outcome_default o ORDER BY o.id LIMIT 20000)) x) w;
  IF gone IS NOT NULL THEN
    DELETE FROM __SCHEMA__.outcome o WHERE o.id = ANY (gone);
    DELETE FROM __SCHEMA__.attempt x WHERE x.job_id = ANY (gone);
    DELETE FROM __SCHEMA__.checkpoint c WHERE c.id = ANY (gone);
    DELETE FROM __SCHEMA__.body b WHERE b.id = ANY (gone);
    action := 'retention'; detail := 'deleted jobs past their retention'; rows := cardinality(gone); RETURN NEXT;
  END IF;
  UPDATE __SCHEMA__.upkeep u SET cursor = CASE WHEN more AND seen = 20000 THEN reached ELSE 0 END;

  DELETE FROM __SCHEMA__.idempotency i WHERE i.ctid = ANY (ARRAY(
    SELECT k.ctid FROM __SCHEMA__.idempotency k WHERE k.created_at < moment - keep
       AND NOT EXISTS (SELECT FROM __SCHEMA__.body b WHERE b.id = k.job_id) LIMIT 10000));
  GET DIAGNOSTICS rows = ROW_COUNT;
  IF rows > 0 THEN action := 'keys'; detail := 'forgot idempotency keys'; RETURN NEXT; END IF;
  DELETE FROM __SCHEMA__.effect e WHERE e.ctid = ANY (ARRAY(
    SELECT k.ctid FROM __SCHEMA__.effect k WHERE k.recorded_at < moment - keep
       AND NOT EXISTS (SELECT FROM __SCHEMA__.body b WHERE b.id = k.job_id) LIMIT 10000));
  GET DIAGNOSTICS rows = ROW_COUNT;
  IF rows > 0 THEN action := 'effects'; detail := 'forgot effect keys'; RETURN NEXT; END IF;
  DELETE FROM __SCHEMA__.worker w WHERE w.state = 'gone' AND w.seen_at < moment - keep;

  -- After the slow parts: the default partition stays locked until this commits.
  SELECT r.upper, r.lower, r.created_at INTO top FROM __SCHEMA__.id_range r ORDER BY r.lower DESC LIMIT 1;
  IF NOT FOUND OR top.upper - newest < 10000000 THEN
    -- A day's worth of ids, judged by all that were ever handed out, within bounds; above every id handed out so far, with
    -- room for those handed out while this waits.
    width := LEAST(GREATEST((newest / GREATEST(extract(epoch FROM moment - (SELECT min(r.created_at) FROM __SCHEMA__.id_range r)), 1) * 86400)::bigint, 10000000), 200000000);
    BEGIN
      SET LOCAL lock_timeout = '100ms';
      PERFORM __SCHEMA__.add_id_range(GREATEST(COALESCE(top.upper, 0), CASE WHEN newest < top.upper THEN 0 ELSE newest + 100000 END),
                                      GREATEST(COALESCE(top.upper, 0), CASE WHEN newest < top.upper THEN 0 ELSE newest + 100000 END) + width);
      action := 'partition'; detail := format('added %s ids', width); rows := 1; RETURN NEXT;
    EXCEPTION WHEN lock_not_available THEN
      action := 'partition'; detail := 'not added: the default partition is in use; next time'; rows := 0; RETURN NEXT;
    END;
  END IF;

  -- Last, because the parents stay locked until this commits: one range a time.
  SELECT r.lower INTO old FROM __SCHEMA__.id_range r
   WHERE r.closed_at < moment - shortest ORDER BY r.lower LIMIT 1;
  IF FOUND THEN
    BEGIN
      action := 'partition'; rows := 1;
      detail := format('range from %s: %s', old.lower, __SCHEMA__.drop_id_range(old.lower, moment));
    EXCEPTION WHEN lock_not_available THEN
      detail := format('range from %s: in use; next time', old.lower); rows := 0;
    END;
    RETURN NEXT;
  END IF;
END
$$;
