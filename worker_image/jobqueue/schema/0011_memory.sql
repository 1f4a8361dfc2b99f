-- What outlives an operator: the memory of its planner; and when each worker was admitted and ready, so that the next one
-- knows how long a start takes.

ALTER TABLE __SCHEMA__.worker
  ADD COLUMN admitted_at timestamptz,               -- its downstream had units for it; at registration when it needs none
  ADD COLUMN ready_at timestamptz;                  -- its app is imported: it claims from here on

CREATE FUNCTION __SCHEMA__.register_worker(
  name text, class text, kinds text[], versions integer[], slots integer, info jsonb DEFAULT '{}'
) RETURNS TABLE (worker bigint, admitted boolean, lease interval, settings jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  cls     __SCHEMA__.class;
  d       __SCHEMA__.downstream;
  w       __SCHEMA__.worker;
  moment  timestamptz := clock_timestamp();
BEGIN
  SELECT c.* INTO cls FROM __SCHEMA__.class c WHERE c.name = register_worker.class;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'class: there is no class %', quote_nullable(left(register_worker.class, 100))
      USING ERRCODE = 'JQ002', HINT = 'register it: jobqueue migrate --class NAME, or --manifest FILE';
  END IF;
  IF COALESCE(length(register_worker.name), 0) NOT BETWEEN 1 AND 253 THEN
    RAISE EXCEPTION 'name: must have 1 to 253 characters' USING ERRCODE = 'JQ003';
  END IF;
  IF register_worker.slots IS NULL OR register_worker.slots NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'slots: % is outside 1..10000', register_worker.slots USING ERRCODE = 'JQ003';
  END IF;
  IF cls.downstream_id IS NOT NULL THEN
    SELECT x.* INTO d FROM __SCHEMA__.downstream x WHERE x.id = cls.downstream_id FOR NO KEY UPDATE;
    IF cls.units_per_pod > d.unit_limit THEN
      RAISE EXCEPTION 'downstream %: a worker of class % takes % units, the limit is %', d.name, cls.name, cls.units_per_pod, d.unit_limit
        USING ERRCODE = 'JQ010', HINT = 'raise the limit or lower units_per_pod';
    END IF;
  END IF;
  INSERT INTO __SCHEMA__.worker AS x (name, class_id, lanes, kinds, slots, units, state, registered_at, seen_at, info)
  VALUES (register_worker.name, cls.id,
          ARRAY(SELECT DISTINCT __SCHEMA__.kind_version(k.kind, k.version) FROM unnest(kinds, versions) AS k(kind, version) WHERE k.kind IS NOT NULL),
          ARRAY(SELECT k.kind || '@' || k.version FROM unnest(kinds, versions) AS k(kind, version) WHERE k.kind IS NOT NULL ORDER BY 1),
          register_worker.slots, cls.units_per_pod, 'waiting', moment, moment, COALESCE(info, '{}'))
  ON CONFLICT (name) WHERE state <> 'gone' DO UPDATE SET seen_at = moment, lanes = excluded.lanes, kinds = excluded.kinds,
    slots = excluded.slots, info = excluded.info
  RETURNING x.* INTO w;
  IF w.class_id <> cls.id THEN
    RAISE EXCEPTION 'name: worker % is registered for another class', quote_literal(w.name) USING ERRCODE = 'JQ006', HINT = 'a name is one process''s';
  END IF;
  -- free_units keeps the units of the worker whose turn it is: they are not charged against that one.
  IF w.state = 'waiting' AND (w.units = 0 OR w.units <= __SCHEMA__.worker_room(d.id) AND w.units <= __SCHEMA__.free_units(d.id)
       + COALESCE((SELECT n.units FROM __SCHEMA__.next_admitted(d.id) n WHERE n.worker = w.id), 0)) THEN
    UPDATE __SCHEMA__.worker x SET state = 'active', admitted_at = clock_timestamp() WHERE x.id = w.id;
    w.state := 'active';
  END IF;
  RETURN QUERY SELECT w.id, w.state <> 'waiting', cls.lease, jsonb_build_object(
    'state', w.state, 'lease_seconds', extract(epoch FROM cls.lease), 'timeout_seconds', extract(epoch FROM cls.timeout),
    'max_attempts', cls.max_attempts, 'concurrency', cls.concurrency, 'paused', cls.paused, 'downstream', d.name,
    'units_per_job', cls.units_per_job, 'units_per_pod', cls.units_per_pod);
END
$$;

-- What the worker says it understands, once its app is imported (admission comes before the import).
CREATE FUNCTION __SCHEMA__.understand(worker bigint, kinds text[], versions integer[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
  UPDATE __SCHEMA__.worker w
     SET lanes = ARRAY(SELECT DISTINCT __SCHEMA__.kind_version(k.kind, k.version) FROM unnest(understand.kinds, versions) AS k(kind, version)),
         kinds = ARRAY(SELECT k.kind || '@' || k.version FROM unnest(understand.kinds, versions) AS k(kind, version) ORDER BY 1),
         ready_at = COALESCE(w.ready_at, clock_timestamp())
   WHERE w.id = understand.worker AND w.state <> 'gone';
  IF NOT FOUND THEN
    RAISE EXCEPTION 'worker: % is not registered', understand.worker USING ERRCODE = 'JQ006';
  END IF;
END
$$;

-- One small object a class, written once a tick and only when it changed.
CREATE TABLE __SCHEMA__.memory (
  class_id   smallint PRIMARY KEY REFERENCES __SCHEMA__.class ON DELETE CASCADE,
  memory     jsonb NOT NULL,
  stored_at  timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- Keep what the planner must know of a class after a restart; null forgets it. snapshot() gives it back.
CREATE FUNCTION __SCHEMA__.remember(epoch bigint, class text, memory jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  cls smallint := (SELECT c.id FROM __SCHEMA__.class c WHERE c.name = remember.class);
BEGIN
  PERFORM __SCHEMA__.check_epoch(remember.epoch);
  IF cls IS NULL THEN
    RAISE EXCEPTION 'class: there is no class %', quote_nullable(left(remember.class, 100))
      USING ERRCODE = 'JQ002', HINT = 'register it: jobqueue migrate --class NAME, or --manifest FILE';
  END IF;
  IF jsonb_typeof(remember.memory) <> 'object' THEN
    RAISE EXCEPTION 'memory: must be an object or null, not %', jsonb_typeof(remember.memory) USING ERRCODE = 'JQ003';
  END IF;
  IF octet_length(remember.memory::text) > 16384 THEN
    RAISE EXCEPTION 'memory: % bytes, at most 16384 are allowed', octet_length(remember.memory::text)
      USING ERRCODE = 'JQ003', HINT = 'keep estimates, not their history';
  END IF;
  IF remember.memory IS NULL THEN
    DELETE FROM __SCHEMA__.memory m WHERE m.class_id = cls;
  ELSE
    INSERT INTO __SCHEMA__.memory AS m VALUES (cls, remember.memory, clock_timestamp())
    ON CONFLICT (class_id) DO UPDATE SET memory = excluded.memory, stored_at = excluded.stored_at
      WHERE m.memory IS DISTINCT FROM excluded.memory;
  END IF;
END
$$;

REVOKE ALL ON FUNCTION
  __SCHEMA__.register_worker(text, text, text[], integer[], integer, jsonb), __SCHEMA__.understand(bigint, text[], integer[]),
  __SCHEMA__.remember(bigint, text, jsonb)
FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
  __SCHEMA__.register_worker(text, text, text[], integer[], integer, jsonb), __SCHEMA__.understand(bigint, text[], integer[])
TO __WORKER__;
GRANT EXECUTE ON FUNCTION __SCHEMA__.remember(bigint, text, jsonb) TO __OPERATOR__;
