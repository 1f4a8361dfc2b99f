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
