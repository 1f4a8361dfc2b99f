-- Enqueue from anything that speaks SQL: the queue's API is its functions.
--
--   jobqueue migrate --class email
--   psql "$JOBQUEUE_DSN" -v ON_ERROR_STOP=1 -f examples/plain_sql.sql
--
-- A producer's login needs the role jobqueue_producer and nothing else: GRANT jobqueue_producer TO shop.

CREATE TABLE IF NOT EXISTS invoice (id bigint PRIMARY KEY, customer text NOT NULL);

-- The business write and the job: one transaction.
BEGIN;
INSERT INTO invoice VALUES (7, 'ada') ON CONFLICT DO NOTHING;
SELECT id, created FROM jobqueue.enqueue('email', 'invoice.email', '{"invoice_id": 7}', key => 'invoice-7');
COMMIT;

-- The same key and payload again: the same id, created = f.
SELECT id, created FROM jobqueue.enqueue('email', 'invoice.email', '{"invoice_id": 7}', key => 'invoice-7');

-- Later, with priority, for a tenant, on somebody's behalf.
SELECT id, created
  FROM jobqueue.enqueue('email', 'invoice.remind', '{"invoice_id": 7}', run_after => clock_timestamp() + interval '3 days',
                        priority => -10, tenant => 'ada', actor_id => 'user-12', correlation_id => 'order-99');

-- Many in one statement: arrays of the same length, answers in their order.
SELECT "position", id, created
  FROM jobqueue.enqueue_many(
         classes => array_fill('email'::text, ARRAY[3]), kinds => array_fill('invoice.email'::text, ARRAY[3]),
         payloads => ARRAY(SELECT jsonb_build_object('invoice_id', n) FROM generate_series(8, 10) n),
         keys => ARRAY(SELECT 'invoice-' || n FROM generate_series(8, 10) n))
 ORDER BY "position";

-- Somebody changed their mind.
BEGIN;
SELECT created FROM jobqueue.enqueue('email', 'invoice.email', '{"invoice_id": 11}', key => 'invoice-11');
ROLLBACK;

-- What is waiting, and what became of it?
SELECT kind, key, status, attempts, priority FROM jobqueue.jobs WHERE class = 'email' ORDER BY id;
