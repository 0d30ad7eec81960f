-- Two roles: pointsman_owner owns the schema and migrates it, pointsman_app is what bridges, workers and the command line connect as. It reads
-- and writes rows and can change no table. Run this once, as a superuser, in the database: psql -d shop -f roles.sql
-- Then give each a password (\password pointsman_app) or another way to log in. Nothing is lost when it is run again.
do $$
begin
	if not exists (select from pg_roles where rolname = 'pointsman_owner') then
		create role pointsman_owner login;
	end if;
	if not exists (select from pg_roles where rolname = 'pointsman_app') then
		create role pointsman_app login;
	end if;
	-- a migration says "create schema if not exists", for which Postgres asks for this right also where the schema exists
	execute format('grant create on database %I to pointsman_owner', current_database());
end
$$;
create schema if not exists pointsman authorization pointsman_owner;
revoke all on schema pointsman from public;
grant usage on schema pointsman to pointsman_app;
alter default privileges for role pointsman_owner in schema pointsman grant select, insert, update, delete on tables to pointsman_app;
alter default privileges for role pointsman_owner in schema pointsman grant usage, select on sequences to pointsman_app;
alter default privileges for role pointsman_owner in schema pointsman grant execute on functions to pointsman_app;
-- what was migrated before
grant select, insert, update, delete on all tables in schema pointsman to pointsman_app;
grant usage, select on all sequences in schema pointsman to pointsman_app;
grant execute on all functions in schema pointsman to pointsman_app;
