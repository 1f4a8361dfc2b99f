-- When a class gets another downstream, or other units: what is in flight is charged as from now on, at once. Otherwise jobs
-- that were claimed before would lean on a downstream that does not count them, for as long as they run.
CREATE FUNCTION __SCHEMA__.recharge() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
  -- In the order in which every other writer of several leases locks them.
  PERFORM FROM __SCHEMA__.lease l WHERE l.class_id = NEW.id ORDER BY l.id FOR UPDATE;
  UPDATE __SCHEMA__.lease l SET downstream_id = NEW.downstream_id, units = NEW.units_per_job
   WHERE l.class_id = NEW.id AND (l.downstream_id, l.units) IS DISTINCT FROM (NEW.downstream_id, NEW.units_per_job::smallint);
  UPDATE __SCHEMA__.worker w SET units = NEW.units_per_pod
   WHERE w.class_id = NEW.id AND w.state <> 'gone' AND w.units <> NEW.units_per_pod;
  RETURN NULL;
END
$$;

CREATE TRIGGER recharge AFTER UPDATE OF downstream_id, units_per_job, units_per_pod ON __SCHEMA__.class FOR EACH ROW
  WHEN ((OLD.downstream_id, OLD.units_per_job, OLD.units_per_pod) IS DISTINCT FROM (NEW.downstream_id, NEW.units_per_job, NEW.units_per_pod))
  EXECUTE FUNCTION __SCHEMA__.recharge();

REVOKE EXECUTE ON FUNCTION __SCHEMA__.recharge() FROM PUBLIC;
