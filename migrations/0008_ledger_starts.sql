-- Where messages had started nobody when the ledger was last analyzed, Postgres takes both indexes of starts for empty, and read this one whole
-- instead of looking for a source in the other. Now only a condition on the instance has to do with it.
create index ledger_starts_of on pointsman.ledger (instance_id) where signal_id is null and instance_id is not null;
drop index pointsman.ledger_starts;
alter index pointsman.ledger_starts_of rename to ledger_starts;
