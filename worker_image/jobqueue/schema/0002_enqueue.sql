-- Enqueue: writes body and ready in the caller's transaction, so that the job exists iff that transaction commits.
-- Parameters are read as `enqueue.name`, because many are also column names.

-- What is wrong with one job, as 'field: reason; remedy', or null. One place for both ways in.
CREATE FUNCTION __SCHEMA__.complaint(
  kind text, payload jsonb, version integer, key text, run_after timestamptz, priority integer, max_attempts integer,
  tenant text, concurrency_key text, correlation_id text, actor_id text, trace_context jsonb
) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
AS $$
  SELECT CASE
    WHEN kind IS NULL OR kind = '' THEN 'kind: must not be empty; name the handler that runs the job'
    WHEN length(kind) > 200 THEN format('kind: %s characters, at most 200 are allowed', length(kind))
    WHEN kind ~ '[[:cntrl:]]' THEN 'kind: control characters are not allowed'
    WHEN payload IS NULL THEN 'payload: must not be null; pass an object such as {}'
    -- What no reader could take in: Python's json refuses such numbers and such depth, and would fail the whole claim.
    WHEN jsonb_path_exists(payload, 'strict $.** ? (@ >= 1e1000 || @ <= -1e1000)', silent => true)
      THEN 'payload: has a number of more than 1000 digits; pass it as text'
    WHEN pg_column_size(payload) > 300 AND jsonb_path_exists(payload, 'strict $.**{65}', silent => true)
      THEN 'payload: nested more than 64 levels deep; flatten it, or store it and pass a reference'
    WHEN octet_length(payload::text) > 262144
      THEN format('payload: %s bytes, at most 262144 are allowed; store the data and pass a reference to it', octet_length(payload::text))
    WHEN version IS NULL OR version < 0 THEN 'version: must be 0 or more'
    WHEN key = '' THEN 'key: must not be empty; leave it out for a job without one'
    WHEN length(key) > 512 THEN format('key: %s characters, at most 512 are allowed', length(key))
    WHEN run_after NOT BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z' THEN 'run_after: must lie between the years 1970 and 9000'
    WHEN priority NOT BETWEEN -100 AND 100 THEN format('priority: %s is outside -100..100', priority)
    WHEN max_attempts NOT BETWEEN 1 AND 1000 THEN format('max_attempts: %s is outside 1..1000', max_attempts)
    WHEN tenant = '' OR length(tenant) > 200 THEN 'tenant: must have 1 to 200 characters'
    WHEN concurrency_key = '' OR length(concurrency_key) > 512 THEN 'concurrency_key: must have 1 to 512 characters'
    WHEN length(correlation_id) > 200 THEN 'correlation_id: at most 200 characters are allowed'
    WHEN length(actor_id) > 200 THEN 'actor_id: at most 200 characters are allowed'
    WHEN pg_column_size(trace_context) > 4096 THEN 'trace_context: at most 4096 bytes are allowed'
    WHEN jsonb_typeof(trace_context) <> 'object' THEN 'trace_context: must be an object'
    WHEN jsonb_path_exists(trace_context, '$.* ? (@.type() != "string")') THEN 'trace_context: its values must be text'
  END
$$;

CREATE FUNCTION __SCHEMA__.enqueue(
  class text, kind text, payload jsonb, version integer DEFAULT 1, key text DEFAULT NULL,
  run_after timestamptz DEFAULT NULL, priority integer DEFAULT 0, max_attempts integer DEFAULT NULL,
  tenant text DEFAULT NULL, concurrency_key text DEFAULT NULL, correlation_id text DEFAULT NULL,
  actor_id text DEFAULT NULL, trace_context jsonb DEFAULT NULL
) RETURNS TABLE (id bigint, created boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  cls      record;
  problem  text;
  moment   timestamptz := clock_timestamp();
  job      bigint;
  owner    record;
  hash     bytea;
  tenant_h integer := 0;
  key_h    integer := 0;
BEGIN
  SELECT c.id, c.max_attempts, c.fair_tenants INTO cls FROM __SCHEMA__.class c WHERE c.name = enqueue.class;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'class: there is no class %', quote_nullable(left(enqueue.class, 100))
      USING ERRCODE = 'JQ002', HINT = 'register it: jobqueue migrate --class NAME, or --manifest FILE';
  END IF;
  problem := __SCHEMA__.complaint(enqueue.kind, enqueue.payload, enqueue.version, enqueue.key, enqueue.run_after,
    enqueue.priority, enqueue.max_attempts, enqueue.tenant, enqueue.concurrency_key, enqueue.correlation_id,
    enqueue.actor_id, enqueue.trace_context);
  IF problem IS NOT NULL THEN
    RAISE EXCEPTION '%', problem USING ERRCODE = 'JQ003';
  END IF;

  job := nextval('__SCHEMA__.job_id');
  IF enqueue.key IS NOT NULL THEN
    hash := sha256(convert_to(enqueue.payload::text, 'UTF8'));
    LOOP
      -- Waits for an uncommitted twin; when that rolls back, this one is inserted.
      INSERT INTO __SCHEMA__.idempotency VALUES (enqueue.kind, enqueue.key, job, hash, moment) ON CONFLICT DO NOTHING;
      EXIT WHEN FOUND;
      SELECT i.job_id, i.digest INTO owner FROM __SCHEMA__.idempotency i WHERE i.kind = enqueue.kind AND i.key = enqueue.key;
      IF FOUND THEN
        IF owner.digest IS DISTINCT FROM hash THEN
          RAISE EXCEPTION 'key: % of kind % belongs to job %, which has a different payload',
            quote_literal(left(enqueue.key, 100)), quote_literal(enqueue.kind), owner.job_id
            USING ERRCODE = 'JQ004', HINT = 'use another key, or the payload the job was enqueued with';
        END IF;
        RETURN QUERY SELECT owner.job_id, false;
        RETURN;
      END IF;                                       -- gone between the two statements: try again
    END LOOP;
  END IF;

  IF enqueue.tenant IS NOT NULL AND cls.fair_tenants THEN tenant_h := __SCHEMA__.hash32(enqueue.tenant); END IF;
  IF enqueue.concurrency_key IS NOT NULL THEN key_h := __SCHEMA__.hash32(enqueue.concurrency_key); END IF;
  INSERT INTO __SCHEMA__.body (id, created_at, version, class_id, priority, max_attempts, kind, payload, key, tenant,
                               concurrency_key, correlation_id, actor_id, trace_context)
  VALUES (job, moment, enqueue.version, cls.id, COALESCE(enqueue.priority, 0), COALESCE(enqueue.max_attempts, cls.max_attempts),
          enqueue.kind, enqueue.payload, enqueue.key, enqueue.tenant, enqueue.concurrency_key, enqueue.correlation_id,
          enqueue.actor_id, enqueue.trace_context);
  INSERT INTO __SCHEMA__.ready (id, run_after, lane, kind_version, class_id, priority, tenant_hash, key_hash, attempts, refunds, budget)
  VALUES (job, COALESCE(enqueue.run_after, moment), __SCHEMA__.tenant_lane(tenant_h),
          __SCHEMA__.kind_version(enqueue.kind, enqueue.version), cls.id, COALESCE(enqueue.priority, 0), tenant_h, key_h, 0, 0, 0);
  -- Only when somebody sleeps: NOTIFY takes a lock at commit that serialises all notifying transactions.
  IF EXISTS (SELECT FROM __SCHEMA__.sleeper s WHERE s.class_id = cls.id) AND COALESCE(enqueue.run_after <= moment, true) THEN
    PERFORM pg_notify(__CHANNEL__, 'class:' || enqueue.class);
  END IF;
  RETURN QUERY SELECT job, true;
END
$$;

CREATE FUNCTION __SCHEMA__.enqueue_many(
  classes text[], kinds text[], payloads jsonb[], versions integer[] DEFAULT NULL, keys text[] DEFAULT NULL,
  run_afters timestamptz[] DEFAULT NULL, priorities integer[] DEFAULT NULL, max_attempts integer[] DEFAULT NULL,
  tenants text[] DEFAULT NULL, concurrency_keys text[] DEFAULT NULL, correlation_ids text[] DEFAULT NULL,
  actor_ids text[] DEFAULT NULL, trace_contexts jsonb[] DEFAULT NULL
) RETURNS TABLE ("position" integer, id bigint, created boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  n        integer := COALESCE(cardinality(classes), 0);
  moment   timestamptz := clock_timestamp();
  bad      record;
  ids      bigint[];
  fresh    boolean[];
  has_keys boolean := keys IS NOT NULL AND cardinality(array_remove(keys, NULL)) > 0;
  sleepy   text;
BEGIN
  IF n = 0 THEN RETURN; END IF;
  IF n > 10000 THEN
    RAISE EXCEPTION 'classes: % jobs in one call, at most 10000 are allowed', n USING ERRCODE = 'JQ003';
  END IF;
  IF cardinality(kinds) IS DISTINCT FROM n OR cardinality(payloads) IS DISTINCT FROM n
     OR COALESCE(cardinality(versions), n) <> n OR COALESCE(cardinality(keys), n) <> n
     OR COALESCE(cardinality(run_afters), n) <> n OR COALESCE(cardinality(priorities), n) <> n
     OR COALESCE(cardinality(max_attempts), n) <> n OR COALESCE(cardinality(tenants), n) <> n
     OR COALESCE(cardinality(concurrency_keys), n) <> n OR COALESCE(cardinality(correlation_ids), n) <> n
     OR COALESCE(cardinality(actor_ids), n) <> n OR COALESCE(cardinality(trace_contexts), n) <> n THEN
    RAISE EXCEPTION 'enqueue_many: every array must be null or have as many elements as classes (%)', n USING ERRCODE = 'JQ003';
  END IF;

  SELECT j.ord, quote_nullable(left(j.class, 100)) AS class,
         CASE WHEN c.id IS NULL THEN 'JQ002' ELSE 'JQ003' END AS state, p.problem
    INTO bad
    FROM unnest(classes, kinds, payloads, versions, keys, run_afters, priorities, enqueue_many.max_attempts, tenants,
                concurrency_keys, correlation_ids, actor_ids, trace_contexts) WITH ORDINALITY
         AS j(class, kind, payload, version, key, run_after, priority, attempts, tenant, concurrency_key, correlation_id, actor_id, trace, ord)
    LEFT JOIN __SCHEMA__.class c ON c.name = j.class
    CROSS JOIN LATERAL (SELECT __SCHEMA__.complaint(j.kind, j.payload, COALESCE(j.version, 1), j.key, j.run_after, j.priority,
      j.attempts, j.tenant, j.concurrency_key, j.correlation_id, j.actor_id, j.trace) AS problem) p
   WHERE c.id IS NULL OR p.problem IS NOT NULL ORDER BY j.ord LIMIT 1;
  IF FOUND AND bad.state = 'JQ002' THEN
    RAISE EXCEPTION 'jobs[%].class: there is no class %', bad.ord - 1, bad.class
      USING ERRCODE = 'JQ002', HINT = 'register it: jobqueue migrate --class NAME, or --manifest FILE';
  ELSIF FOUND THEN
    RAISE EXCEPTION 'jobs[%].%', bad.ord - 1, bad.problem USING ERRCODE = 'JQ003';
  END IF;

  ids := ARRAY(SELECT nextval('__SCHEMA__.job_id') FROM generate_series(1, n));
  IF has_keys THEN
    LOOP
      -- In the order of the keys: two calls with the same keys wait for each other instead of deadlocking.
      INSERT INTO __SCHEMA__.idempotency (kind, key, job_id, digest, created_at)
      SELECT DISTINCT ON (j.kind, j.key) j.kind, j.key, ids[j.ord], sha256(convert_to(j.payload::text, 'UTF8')), moment
        FROM unnest(kinds, keys, payloads) WITH ORDINALITY AS j(kind, key, payload, ord)
       WHERE j.key IS NOT NULL ORDER BY j.kind, j.key, j.ord
      ON CONFLICT DO NOTHING;
      EXIT WHEN NOT EXISTS (
        SELECT FROM unnest(kinds, keys) AS j(kind, key)
         WHERE j.key IS NOT NULL
           AND NOT EXISTS (SELECT FROM __SCHEMA__.idempotency i WHERE i.kind = j.kind AND i.key = j.key));
    END LOOP;
    SELECT j.ord, j.kind, j.key, i.job_id INTO bad
      FROM unnest(kinds, keys, payloads) WITH ORDINALITY AS j(kind, key, payload, ord)
      JOIN __SCHEMA__.idempotency i ON i.kind = j.kind AND i.key = j.key
     WHERE i.digest <> sha256(convert_to(j.payload::text, 'UTF8')) ORDER BY j.ord LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION 'jobs[%].key: % of kind % belongs to job %, which has a different payload',
        bad.ord - 1, quote_literal(left(bad.key, 100)), quote_literal(bad.kind), bad.job_id
        USING ERRCODE = 'JQ004', HINT = 'use another key, or the payload the job was enqueued with';
    END IF;
    SELECT array_agg(COALESCE(i.job_id, ids[j.ord]) ORDER BY j.ord), array_agg(i.job_id IS NULL OR i.job_id = ids[j.ord] ORDER BY j.ord)
      INTO ids, fresh
      FROM unnest(kinds, keys) WITH ORDINALITY AS j(kind, key, ord)
      LEFT JOIN __SCHEMA__.idempotency i ON i.kind = j.kind AND i.key = j.key;
  END IF;

  WITH input AS MATERIALIZED (
    SELECT ids[j.ord] AS id, c.id AS class_id, j.kind, j.payload, COALESCE(j.version, 1) AS version, j.key,
           -- A microsecond apart, in the order of the call, so that a claim's floor tells the rows of one call apart.
           COALESCE(j.run_after, moment - (n - j.ord) * interval '1 microsecond') AS run_after, COALESCE(j.priority, 0)::smallint AS priority,
           COALESCE(j.attempts, c.max_attempts)::smallint AS max_attempts, j.tenant, j.concurrency_key, j.correlation_id, j.actor_id, j.trace,
           CASE WHEN c.fair_tenants AND j.tenant IS NOT NULL THEN __SCHEMA__.hash32(j.tenant) ELSE 0 END AS tenant_hash,
           CASE WHEN j.concurrency_key IS NOT NULL THEN __SCHEMA__.hash32(j.concurrency_key) ELSE 0 END AS key_hash
      FROM unnest(classes, kinds, payloads, versions, keys, run_afters, priorities, enqueue_many.max_attempts, tenants,
                  concurrency_keys, correlation_ids, actor_ids, trace_contexts) WITH ORDINALITY
           AS j(class, kind, payload, version, key, run_after, priority, attempts, tenant, concurrency_key, correlation_id, actor_id, trace, ord)
      JOIN __SCHEMA__.class c ON c.name = j.class
     WHERE fresh IS NULL OR fresh[j.ord]
     ORDER BY j.ord
  ), bodies AS (
    INSERT INTO __SCHEMA__.body (id, created_at, version, class_id, priority, max_attempts, kind, payload, key, tenant,
                                 concurrency_key, correlation_id, actor_id, trace_context)
    SELECT i.id, moment, i.version, i.class_id, i.priority, i.max_attempts, i.kind, i.payload, i.key, i.tenant,
           i.concurrency_key, i.correlation_id, i.actor_id, i.trace FROM input i
  )
  INSERT INTO __SCHEMA__.ready (id, run_after, lane, kind_version, class_id, priority, tenant_hash, key_hash, attempts, refunds, budget)
  SELECT i.id, i.run_after, __SCHEMA__.tenant_lane(i.tenant_hash), __SCHEMA__.kind_version(i.kind, i.version), i.class_id,
         i.priority, i.tenant_hash, i.key_hash, 0, 0, 0 FROM input i;

  FOR sleepy IN
    SELECT DISTINCT j.class FROM unnest(classes, run_afters) AS j(class, run_after) JOIN __SCHEMA__.class c ON c.name = j.class
     WHERE COALESCE(j.run_after <= moment, true) AND EXISTS (SELECT FROM __SCHEMA__.sleeper s WHERE s.class_id = c.id)
  LOOP
    PERFORM pg_notify(__CHANNEL__, 'class:' || sleepy);
  END LOOP;
  RETURN QUERY SELECT o.ord::integer, o.id, COALESCE(fresh[o.ord], true)
                 FROM unnest(ids) WITH ORDINALITY AS o(id, ord) ORDER BY o.ord;
END
$$;
