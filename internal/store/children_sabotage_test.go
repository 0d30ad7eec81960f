package store

// familySabotages are those of children, and of awaits with numbers and conditions.
func familySabotages() []sabotage {
	edits := func(field func(*texts) *string, old, new string) []edit { return []edit{{field, old, new}} }
	recheck := func(t *texts) *string { return &t.recheck }
	wakeParents := func(t *texts) *string { return &t.wakeParents }
	return []sabotage{
		{
			"parents are not locked with the own rows", edits(func(t *texts) *string { return &t.commit }, "any($17)", "any($2) and $17::uuid[] is not null"),
			[]string{"child: end / end, all", "child: end / end, two", "child: end / park, all", "child: end / end of the parent"},
		},
		{"cancel does not lock the parents", edits(func(t *texts) *string { return &t.cancel }, "p.id = any($1)", "p.id = any($1) and false"), []string{"child: end / cancel, all"}},
		{"ends wake nobody", edits(wakeParents, "", `select $1::uuid[] where $2::uuid[] is null and false`), []string{"child: end / end, all", "child: end / cancel, all", "child: end / pause, resume"}},
		{"a park does not look at children", edits(recheck, " or coalesce((\n", " or false and coalesce((\n"), []string{"child: end / park, all", "child: end / park, any", "child: end / pause, resume"}},
		{"a park without an inbox waits for children", edits(recheck, "unnest($3::uuid[]) x(id)", "unnest($3::uuid[]) x(id) where false"), []string{"child: parks for none, any", "child: parks for none, all / deliver"}},
		{"a park does not think of the children that it starts", edits(recheck, " and i.id <> all($2)", " and $2::uuid[] is not null"), []string{"child: parks with a start / end of another", "child: parks with a start, and signals itself / deliver"}},
		{"retry does not tell what was missed", edits(func(t *texts) *string { return &t.tellMissed }, "", `select $1::uuid where $2::timestamptz is null`), []string{"child: end / cancel of the parent, retry"}},
		{"retry tells what was told", edits(func(t *texts) *string { return &t.tellMissed }, "md5('child:' || e.id || ':' || e.rev)", "md5(random()::text)"), []string{"child: end / cancel of the parent, retry"}},
		{"a signal decides by itself where several are awaited", edits(func(t *texts) *string { return &t.deliverKey }, "i.await_n > 1 or", ""), []string{"condition: deliver / deliver a third, 2 of 3"}},
		{"a signal decides by itself where there is a condition", edits(func(t *texts) *string { return &t.deliverKey }, "i.await_where is not null or", ""), []string{"condition: deliver / one does not pass"}},
		{"a park asks for no condition", edits(recheck, "i.await_where ? s.name", "false"), []string{"condition: deliver / park, does not pass", "condition: deliver / deliver, 2 of 2, one does not"}},
		{"a slow delivery looks with its own snapshot only", edits(recheck, "", noWake), []string{"condition: deliver / deliver, 2 of 2, one passes"}},
	}
}
