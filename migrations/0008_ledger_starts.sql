-- Where messages had started nobody when the ledger was last analyzed, Postgres takes both indexes of starts for empty, and read this one whole
-- instead of looking for a source in the other. Now only a condition on the instance has to do with it.
drop index pointsman.ledger_starts;
create index ledger_starts on pointsman.ledger (instance_id) where signal_id is null and instance_id is not null;
