package api

import (
	"context"

	"github.com/google/uuid"
)

// Children returns the children of an instance, the ended ones too, in the order of their ids, which is that of their starts.
func (a *API) Children(ctx context.Context, project string, r PageRequest) (Page[Instance], error) {
	var after uuid.UUID
	id, limit, err := a.open(ctx, project, r, &after)
	if err != nil {
		return Page[Instance]{}, err
	}
	rows, err := a.Client.Children(ctx, id, after, limit+1)
	if err != nil {
		return Page[Instance]{}, err
	}
	items := make([]Instance, len(rows))
	for i, row := range rows {
		items[i] = instanceOf(row)
	}
	return pageOf(items, limit, func(in Instance) string { return pack(in.ID) })
}
