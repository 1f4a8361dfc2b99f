-- Who may do what. Nobody but the owner touches a table; EXECUTE is revoked from PUBLIC here, in the transaction that
-- created the functions, so that there is no moment in which it was not.

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA __SCHEMA__ FROM PUBLIC;
GRANT USAGE ON SCHEMA __SCHEMA__ TO __PRODUCER__, __WORKER__, __OPERATOR__, __READER__, __SUPPORT__;

GRANT EXECUTE ON FUNCTION
  __SCHEMA__.enqueue(text, text, jsonb, integer, text, timestamptz, integer, integer, text, text, text, text, jsonb),
  __SCHEMA__.enqueue_many(text[], text[], jsonb[], integer[], text[], timestamptz[], integer[], integer[], text[], text[], text[], text[], jsonb[])
TO __PRODUCER__;

GRANT EXECUTE ON FUNCTION
  __SCHEMA__.claim(text, bigint, bigint, integer, interval, text[], integer[], timestamptz),
  __SCHEMA__.extend(bigint, bigint[], bigint[], interval),
  __SCHEMA__.heartbeat(bigint),
  __SCHEMA__.complete(bigint, bigint), __SCHEMA__.complete_many(bigint[], bigint[]),
  __SCHEMA__.fail(bigint, bigint, text, text, interval, text), __SCHEMA__.fail_many(bigint[], bigint[], text[], text[], interval[], text[]),
  __SCHEMA__.release(bigint, bigint, text), __SCHEMA__.release_many(bigint[], bigint[], text),
  __SCHEMA__.snooze(bigint, bigint, timestamptz), __SCHEMA__.snooze_many(bigint[], bigint[], timestamptz[]),
  __SCHEMA__.checkpoint(bigint, bigint, jsonb), __SCHEMA__.effect(bigint, bigint, text),
  __SCHEMA__.recover(bigint, bigint, bigint[]), __SCHEMA__.forget_worker(bigint), __SCHEMA__.sleeping(bigint, text, boolean),
  __SCHEMA__.sweep(integer), __SCHEMA__.maintain()
TO __WORKER__;

GRANT EXECUTE ON FUNCTION
  __SCHEMA__.lead(text), __SCHEMA__.set_class(bigint, text, jsonb), __SCHEMA__.set_downstream(bigint, text, integer),
  __SCHEMA__.set_paused(bigint, text, boolean), __SCHEMA__.retire_worker(bigint, bigint[]), __SCHEMA__.unretire_worker(bigint, bigint[]),
  __SCHEMA__.forget_worker(bigint), __SCHEMA__.sweep(integer), __SCHEMA__.maintain(), __SCHEMA__.sleeping(bigint, text, boolean)
TO __OPERATOR__;
GRANT SELECT ON __SCHEMA__.workers TO __OPERATOR__, __READER__, __SUPPORT__;

GRANT SELECT (id, class, kind, version, status, attempts, max_attempts, priority, run_after, leased_until, key, tenant, concurrency_key,
              actor_id, correlation_id, last_error, reason, created_at, started_at, finished_at) ON __SCHEMA__.jobs TO __READER__;
GRANT SELECT ON __SCHEMA__.attempts TO __READER__, __SUPPORT__;
GRANT SELECT ON __SCHEMA__.jobs TO __SUPPORT__;
GRANT EXECUTE ON FUNCTION __SCHEMA__.cancel(bigint), __SCHEMA__.redrive(bigint[], interval, boolean),
  __SCHEMA__.redrive_where(text, text, text, text, timestamptz, timestamptz, integer, interval, boolean), __SCHEMA__.redact(bigint[])
TO __SUPPORT__;
-- So that any of them can tell whether the schema is of its release.
GRANT SELECT ON __SCHEMA__.migration TO __PRODUCER__, __WORKER__, __OPERATOR__, __READER__, __SUPPORT__;
