package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Sources of a delivery.
const (
	SourceTrigger  = "trigger"
	SourceInstance = "instance"
)

// NewDelivery is a webhook to be sent.
type NewDelivery struct {
	Project  string
	Source   string // SourceTrigger, SourceInstance
	SourceID uuid.UUID
	URL      string
	Type     string    // as "trigger.received"
	At       time.Time // of what it tells of
	Data     []byte    // JSON of the trigger or instance
}

// AddDeliveries writes webhooks to be sent, due at once. It belongs into the transaction that makes what they tell of true: call it on
// the store inside it (in [Store.InTx], or within inTx), after the locks. A statement that has it all at hand may also insert the rows
// itself (project, source, source_id, url, type and body are all it has to give; see insertDeliveries). Who commits the transaction
// pokes the senders afterwards.
func (s *Store) AddDeliveries(ctx context.Context, ds []NewDelivery) error {
	if len(ds) == 0 {
		return nil
	}
	n := len(ds)
	projects, sources, ids, urls, types := make([]string, n), make([]string, n), make([]uuid.UUID, n), make([]string, n), make([]string, n)
	ats, data := make([]time.Time, n), make([]string, n)
	for i, d := range ds {
		projects[i], sources[i], ids[i], urls[i], types[i], ats[i], data[i] = d.Project, d.Source, d.SourceID, d.URL, d.Type, d.At, jsonText(d.Data)
	}
	return s.each(ctx, "add deliveries", s.text.addDeliveries, nil, projects, sources, ids, urls, types, ats, data)
}

// addDeliveriesText (arrays: $1 projects, $2 sources, $3 their ids, $4 URLs, $5 types, $6 times, $7 data).
var addDeliveriesText = `
with /* add deliveries */ d as materialized (
  select * from unnest($1::text[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::timestamptz[], $7::text[]) with ordinality
    t(project, source, source_id, url, type, at, data, ord)
)` + insertDeliveries

// insertDeliveries writes the rows of d: project, source, source_id, url, type, at, data (JSON, as text or json), ord.
var insertDeliveries = `
insert into pointsman.webhook_deliveries (project, source, source_id, url, type, body)
select d.project, d.source, d.source_id, d.url, d.type, json_build_object('type', d.type, 'timestamp', ` + jsonTime(`d.at`) + `, 'data', d.data::json)
from d order by d.ord`
