package engine

import "github.com/google/uuid"

// to is whom an item is for: one instance has one Ref, also where the batch names it by its id and by its key.
func (a *acceptance) to(i int) Ref {
	if to, ok := a.paired[i]; ok {
		return to
	}
	return a.batch[i].To.named()
}

func (a *acceptance) project(i int) string {
	if to, ok := a.paired[i]; ok {
		return to.project
	}
	return a.batch[i].project()
}

// pair finds the instances that the batch names both by id and by key. Signals by key and signals by id take two statements, so these go
// by id all together, in the order of the batch; who is not there any more by then is looked for by key again.
func (a *acceptance) pair() error {
	var ids []uuid.UUID
	for i := range a.batch {
		if in := &a.batch[i]; in.To.id != uuid.Nil && in.Name != "" && a.receipts[i].Result != Refused {
			ids = append(ids, in.To.id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	named := map[Ref]uuid.UUID{}
	for i := range a.batch {
		if in := &a.batch[i]; in.To.id == uuid.Nil && in.Name != "" && a.receipts[i].Result != Refused {
			named[in.To.named()] = uuid.Nil
		}
	}
	if len(named) == 0 {
		return nil
	}
	holders, err := a.st.KeysOf(a.ctx, ids)
	if err != nil {
		return err
	}
	a.paired = map[int]Ref{}
	for id, h := range holders {
		if _, ok := named[ByKey(h.Project, h.Key)]; ok {
			named[ByKey(h.Project, h.Key)] = id
		}
	}
	for i := range a.batch {
		to := a.batch[i].To.named()
		id := named[to]
		if h, ok := holders[to.id]; ok && named[ByKey(h.Project, h.Key)] == to.id && (to.project == "" || to.project == h.Project) {
			to, id = ByKey(h.Project, h.Key), to.id
		}
		if id != uuid.Nil && a.batch[i].Name != "" {
			a.paired[i], a.signals[i].ID = Ref{project: to.project, id: id}, id
		}
	}
	return nil
}
