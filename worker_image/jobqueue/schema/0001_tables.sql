-- The tables. What each row is, who writes it, and why it is cut this way.
--
--   body     what was asked: one row a job, written at enqueue and never updated (redaction excepted), so it costs no
--            index churn however often the job is tried.
--   ready    waiting, due or scheduled: a narrow row, deleted by the claim. One ordered index answers every claim.
--   lease    being worked on: inserted by the claim, deleted by the acknowledgement, updated by heartbeats only.
--   outcome  ended (done, dead, cancelled): inserted by the acknowledgement, removed only by redrive.
--   attempt  attempts that ended without ending the job (retry, lost, released, snoozed), and those before a redrive.
--
-- A job is in exactly one of ready, lease and outcome; every move between them is one transaction, and the primary keys
-- make a second place impossible within each. The view `jobs` joins them.
--
-- Placeholders in double underscores are replaced by the migrator with quoted names.

CREATE SEQUENCE __SCHEMA__.job_id AS bigint;

CREATE TABLE __SCHEMA__.downstream (
  id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name        text NOT NULL UNIQUE CHECK (name <> '' AND length(name) <= 253),
  unit_limit  integer NOT NULL CHECK (unit_limit >= 0)
);

CREATE TABLE __SCHEMA__.class (
  id               smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name             text NOT NULL UNIQUE,
  lease            interval NOT NULL DEFAULT '60 seconds',
  timeout          interval NOT NULL DEFAULT '30 seconds',
  max_attempts     integer NOT NULL DEFAULT 10,
  backoff_initial  interval NOT NULL DEFAULT '2 seconds',
  backoff_factor   double precision NOT NULL DEFAULT 2,
  backoff_max      interval NOT NULL DEFAULT '10 minutes',
  concurrency      integer NOT NULL DEFAULT 16,
  fair_tenants     boolean NOT NULL DEFAULT false,
  tenant_limit     integer,
  key_limit        integer NOT NULL DEFAULT 1,
  downstream_id    integer REFERENCES __SCHEMA__.downstream,
  units_per_job    integer NOT NULL DEFAULT 1,
  units_per_pod    integer NOT NULL DEFAULT 0,
  target_age       interval NOT NULL DEFAULT '30 seconds',
  done_retention   interval NOT NULL DEFAULT '7 days',
  dead_retention   interval NOT NULL DEFAULT '30 days',
  paused           boolean NOT NULL DEFAULT false
);

-- One row a worker process incarnation. Kept after its end (state gone), so that the history of attempts can name it.
CREATE TABLE __SCHEMA__.worker (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name           text NOT NULL,
  class_id       smallint NOT NULL REFERENCES __SCHEMA__.class,
  lanes          integer[] NOT NULL,               -- kind_version() of each kind and version it understands
  kinds          text[] NOT NULL,                  -- the same, readable: 'kind@version'
  slots          integer NOT NULL,
  units          integer NOT NULL DEFAULT 0,       -- downstream units held by the process itself
  state          text NOT NULL CHECK (state IN ('waiting', 'active', 'retired', 'gone')),
  registered_at  timestamptz NOT NULL,
  seen_at        timestamptz NOT NULL,
  request_floor  bigint NOT NULL DEFAULT -1,       -- claims with a request at or below it are refused
  info           jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
CREATE UNIQUE INDEX worker_name ON __SCHEMA__.worker (name) WHERE state <> 'gone';
CREATE INDEX worker_class ON __SCHEMA__.worker (class_id) WHERE state <> 'gone';

-- Who sleeps and wants a NOTIFY. worker_id 0 is the operator's, for a class with no worker at all.
CREATE TABLE __SCHEMA__.sleeper (
  class_id   smallint NOT NULL,
  worker_id  bigint NOT NULL,
  PRIMARY KEY (class_id, worker_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE __SCHEMA__.body (
  id               bigint NOT NULL PRIMARY KEY,
  created_at       timestamptz NOT NULL,
  version          integer NOT NULL,
  class_id         smallint NOT NULL,
  priority         smallint NOT NULL,
  max_attempts     smallint NOT NULL,
  redacted         boolean NOT NULL DEFAULT false,
  kind             text NOT NULL,
  payload          jsonb NOT NULL,
  key              text,
  tenant           text,
  concurrency_key  text,
  correlation_id   text,
  actor_id         text,
  trace_context    jsonb
) PARTITION BY RANGE (id);

-- lane: 0 plain · > 0 a tenant's, taken in turns · -1 suspects · below -1 parked behind a concurrency key in use
CREATE TABLE __SCHEMA__.ready (
  id            bigint NOT NULL PRIMARY KEY,
  run_after     timestamptz NOT NULL,
  lane          bigint NOT NULL,
  kind_version  integer NOT NULL,
  class_id      smallint NOT NULL,
  priority      smallint NOT NULL,
  tenant_hash   integer NOT NULL,                  -- 0 when none or when the class is not fair
  key_hash      integer NOT NULL,                  -- 0 when none
  attempts      smallint NOT NULL,
  refunds       smallint NOT NULL,
  budget        smallint NOT NULL                  -- how often redriven
) WITH (fillfactor = 95, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 20000);
-- The claim's index: equality on all but the last two, which give the order. Kind and version stand ahead of the time, so
-- that jobs nobody understands cost a claim nothing.
CREATE INDEX ready_claim ON __SCHEMA__.ready (class_id, priority, kind_version, lane, run_after, id);
CREATE INDEX ready_suspect ON __SCHEMA__.ready (class_id, run_after, id) WHERE lane = -1;
CREATE INDEX ready_parked ON __SCHEMA__.ready (class_id, key_hash, priority DESC, run_after, id) WHERE lane < -1;

CREATE TABLE __SCHEMA__.lease (
  id             bigint NOT NULL PRIMARY KEY,
  token          bigint NOT NULL,
  leased_until   timestamptz NOT NULL,
  started_at     timestamptz NOT NULL,
  due_at         timestamptz NOT NULL,
  worker_id      bigint NOT NULL,
  downstream_id  integer,
  tenant_hash    integer NOT NULL,
  key_hash       integer NOT NULL,
  class_id       smallint NOT NULL,
  units          smallint NOT NULL,
  attempts       smallint NOT NULL,
  refunds        smallint NOT NULL,
  budget         smallint NOT NULL,
  suspect        boolean NOT NULL,
  cancel         boolean NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0.5, autovacuum_analyze_threshold = 20000);
-- None of these holds what a heartbeat changes, so heartbeats stay heap-only. Ordinary leases are in none of them.
CREATE INDEX lease_downstream ON __SCHEMA__.lease (downstream_id, units) WHERE downstream_id IS NOT NULL;
CREATE INDEX lease_key ON __SCHEMA__.lease (class_id, key_hash) WHERE key_hash <> 0;
CREATE INDEX lease_tenant ON __SCHEMA__.lease (class_id, tenant_hash) WHERE tenant_hash <> 0;
CREATE INDEX lease_suspect ON __SCHEMA__.lease (worker_id) WHERE suspect;
CREATE INDEX lease_cancel ON __SCHEMA__.lease (worker_id) WHERE cancel;

CREATE TABLE __SCHEMA__.outcome (
  id           bigint NOT NULL PRIMARY KEY,
  token        bigint,                             -- null when it ended without an attempt
  worker_id    bigint,
  started_at   timestamptz,
  finished_at  timestamptz NOT NULL,
  class_id     smallint NOT NULL,
  attempts     smallint NOT NULL,
  refunds      smallint NOT NULL,
  budget       smallint NOT NULL,
  status       "char" NOT NULL CHECK (status IN ('d', 'x', 'c')),   -- done, dead, cancelled
  reason       text,
  last_error   text
) PARTITION BY RANGE (id);
CREATE INDEX outcome_dead ON __SCHEMA__.outcome (class_id, finished_at) WHERE status = 'x';

CREATE TABLE __SCHEMA__.attempt (
  job_id       bigint NOT NULL,
  token        bigint NOT NULL,
  worker_id    bigint NOT NULL,
  started_at   timestamptz NOT NULL,
  finished_at  timestamptz NOT NULL,
  number       smallint NOT NULL,
  budget       smallint NOT NULL,
  outcome      text NOT NULL CHECK (outcome IN ('retry', 'lost', 'released', 'snoozed', 'done', 'dead', 'cancelled')),
  reason       text,
  error        text,
  PRIMARY KEY (job_id, token)
) PARTITION BY RANGE (job_id);

-- Rows whose range has no partition (a maintenance that is late, survivors of a dropped one) land here: no enqueue ever
-- fails for want of a partition.
CREATE TABLE __SCHEMA__.body_default PARTITION OF __SCHEMA__.body DEFAULT;
CREATE TABLE __SCHEMA__.outcome_default PARTITION OF __SCHEMA__.outcome DEFAULT;
CREATE TABLE __SCHEMA__.attempt_default PARTITION OF __SCHEMA__.attempt DEFAULT;

-- The id ranges [lower, upper) that have partitions of their own: body_<lower>, outcome_<lower>, attempt_<lower>.
CREATE TABLE __SCHEMA__.id_range (
  lower       bigint PRIMARY KEY,
  upper       bigint NOT NULL CHECK (upper > lower),
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  closed_at   timestamptz                          -- when maintenance first saw every id of it handed out
);

CREATE TABLE __SCHEMA__.checkpoint (
  id     bigint PRIMARY KEY,
  state  jsonb NOT NULL
);

CREATE TABLE __SCHEMA__.effect (
  key          text PRIMARY KEY,
  job_id       bigint NOT NULL,
  recorded_at  timestamptz NOT NULL
);
CREATE INDEX effect_recorded ON __SCHEMA__.effect USING brin (recorded_at);

CREATE TABLE __SCHEMA__.idempotency (
  kind        text NOT NULL,
  key         text NOT NULL,
  job_id      bigint NOT NULL,
  digest      bytea NOT NULL,                      -- sha256 of the payload's canonical text
  created_at  timestamptz NOT NULL,
  PRIMARY KEY (kind, key)
);
CREATE INDEX idempotency_created ON __SCHEMA__.idempotency USING brin (created_at);

-- Counters that only the sweep moves.
CREATE TABLE __SCHEMA__.tally (
  class_id     smallint PRIMARY KEY,
  expirations  bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE __SCHEMA__.leader (
  single  boolean PRIMARY KEY DEFAULT true CHECK (single),
  epoch   bigint NOT NULL,
  holder  text NOT NULL,
  since   timestamptz NOT NULL
);
INSERT INTO __SCHEMA__.leader VALUES (true, 0, '', clock_timestamp());

CREATE TABLE __SCHEMA__.upkeep (
  single  boolean PRIMARY KEY DEFAULT true CHECK (single),
  cursor  bigint NOT NULL DEFAULT 0                -- where the next pass over old rows begins
);
INSERT INTO __SCHEMA__.upkeep DEFAULT VALUES;

-- A tenant's, a key's or a kind-and-version's number. 32 bits of md5, the same on every server and release. A collision
-- makes two keys share one limit, or hands a worker a job that it gives back: slower, never wrong.
CREATE FUNCTION __SCHEMA__.hash32(value text) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT COALESCE(NULLIF(('x' || left(md5(value), 8))::bit(32)::integer, 0), 1) $$;

CREATE FUNCTION __SCHEMA__.kind_version(kind text, version integer) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT ('x' || left(md5(kind || '@' || version::text), 8))::bit(32)::integer $$;

-- A lease token: 63 random bits. Not a sequence: one that failed over could hand a lost token out again.
CREATE FUNCTION __SCHEMA__.new_token() RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
AS $$ SELECT (floor(random() * 2147483648)::bigint << 32) | floor(random() * 4294967296)::bigint $$;

CREATE FUNCTION __SCHEMA__.tenant_lane(tenant_hash integer) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT tenant_hash::bigint & 4294967295 $$;

CREATE FUNCTION __SCHEMA__.parked_lane(key_hash integer) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT -2 - (key_hash::bigint & 4294967295) $$;

-- Full-jitter exponential backoff after `attempts` failures (1 or more): uniform over [0, min(most, initial·factor^(n−1))).
-- Without overflow at any number: the power is taken only where it stays below the cap.
CREATE FUNCTION __SCHEMA__.backoff(attempts integer, initial interval, factor double precision, most interval)
RETURNS interval LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
AS $$
  SELECT make_interval(secs => random() * CASE
    WHEN (GREATEST(attempts, 1) - 1) * ln(factor) >= ln(extract(epoch FROM most)::double precision / extract(epoch FROM initial)::double precision)
      THEN extract(epoch FROM most)::double precision
    ELSE extract(epoch FROM initial)::double precision * power(factor, GREATEST(attempts, 1) - 1)
  END)
$$;
