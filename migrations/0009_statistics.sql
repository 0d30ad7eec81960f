-- What changes at the rate of the traffic is analyzed as often as autovacuum comes by, and a sample of 30,000 instances keeps a processor busy for
-- a quarter of a second, which those who wait for it notice. Of these tables the planner needs to know how many rows and how many distinct
-- values there are: a tenth of the sample tells.
do $$
declare t text; c text;
begin
  foreach t in array '{instances,signals,ledger,history}'::text[] loop
    for c in select attname from pg_attribute where attrelid = format('pointsman.%I', t)::regclass and attnum > 0 and not attisdropped loop
      execute format('alter table pointsman.%I alter column %I set statistics 10', t, c);
    end loop;
  end loop;
end $$;
