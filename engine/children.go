package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

// Children says how many ends of children an await waits for: [AllChildren], [AnyChild] or [NChildren].
type Children int

const (
	AllChildren Children = -1 // until none of the children is live
	AnyChild    Children = 1  // for one end
)

// NChildren is for n ends in the inbox, 1 to [MaxAwaited].
func NChildren(n int) Children { return Children(n) }

func (n Children) String() string {
	switch n {
	case AllChildren:
		return "all children"
	case AnyChild:
		return "any child"
	}
	return fmt.Sprintf("%d children", int(n))
}

// tag is what stands among the awaited.
func (n Children) tag() string { return KindChild + "/" + n.String() }

// StartChild is [Outcome.Start] of an instance that has this one as its parent: its end, of whatever kind, comes into the inbox of this
// one as a [Signal] of the kind [KindChild], named by the child's id, with a [ChildEnd] as its payload, in the transaction that ends it. A
// child that does not start, because its correlation key, its unique key or its dedup key is another's, brings such an entry at once, with
// the status [ChildNotStarted]; one whose key a child of this instance has already brings none, as that one's end will come.
//
// In everything else a child is an ordinary instance. When its parent ends it goes on; [WithChildren] cancels both.
func (o Outcome) StartChild(n NewInstance) Outcome {
	o = o.Start(n)
	o.starts[len(o.starts)-1].child = true
	return o
}

// OrChildren makes an await wake for ends of children too, beside its names. It wakes when as many ends are in the inbox as asked for, of
// which one was not handed to this step; or when no child is live (any more), so that nobody waits for what cannot come: at once, with
// nothing in Awaited, where there never was one. A step that came from an await for the same number, and found nothing new, waits for
// the next end.
//
// More ends than [MaxAwaited] come in packs: an await that is [Outcome.Consuming], or a [Next], makes room for the next one, and InboxMore
// says that there is one.
func (o Outcome) OrChildren(n Children) Outcome {
	switch {
	case o.kind != store.OutcomeAwait:
		o.check(fmt.Errorf("OrChildren(%s): wants an await", n))
	case n != AllChildren && (n < 1 || n > MaxAwaited):
		o.check(fmt.Errorf("OrChildren: waits for %d ends: want AllChildren, or 1 to %d; a step is handed no more", int(n), MaxAwaited))
	case slices.Contains(o.awaits, store.TagChildren):
		o.check(fmt.Errorf("OrChildren(%s): the await waits for children already", n))
	}
	o.awaits = append(slices.Clip(o.awaits), store.TagChildren, n.tag())
	return o
}

// ChildNotStarted is the status of a [ChildEnd] of a child that was not started; Reason says why.
const ChildNotStarted Status = "not_started"

// ChildEnd is the payload of a child's end.
type ChildEnd struct {
	InstanceID     uuid.UUID       `json:"instance_id"`
	Machine        string          `json:"machine"`
	Version        int             `json:"version"`
	Status         Status          `json:"status"` // done, failed, canceled; or not_started
	CorrelationKey string          `json:"correlation_key"`
	Result         json.RawMessage `json:"result"` // of a done one
	Reason         string          `json:"reason"` // of the others
	FinishedAt     time.Time       `json:"finished_at"`
}

// ChildEnds are those of the signals that are ends of children, decoded.
func ChildEnds(signals []Signal) (ends []ChildEnd, err error) {
	for _, s := range signals {
		if s.Kind != KindChild {
			continue
		}
		var e ChildEnd
		if err := s.Decode(&e); err != nil {
			return nil, fmt.Errorf("the end of child %s: %w", s.Name, err)
		}
		ends = append(ends, e)
	}
	return ends, nil
}

// handedChildren are the tags that say of a step that it knows how its children stand: it came from an await of them, and was handed no
// end that it would consume now.
func handedChildren(work *store.Work, awaited []Signal) (tags []string) {
	if slices.ContainsFunc(awaited, func(s Signal) bool { return s.Kind == KindChild }) {
		return nil
	}
	for _, tag := range work.Awaits {
		if strings.HasPrefix(tag, KindChild+"/") {
			tags = append(tags, tag)
		}
	}
	return tags
}

// Children returns up to limit children of an instance with an id above after, in the order of their ids, the ended ones too.
func (c *Client) Children(ctx context.Context, parent, after uuid.UUID, limit int) ([]Instance, error) {
	rows, err := c.store.Children(ctx, []uuid.UUID{parent}, false, after, limit)
	if err != nil {
		return nil, fmt.Errorf("children: %w", err)
	}
	ids := make([]uuid.UUID, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	ins, err := c.store.Instances(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("children: %w", err)
	}
	children := make([]Instance, len(ins))
	for i, in := range ins {
		children[i] = snapshot(in)
	}
	slices.SortFunc(children, func(a, b Instance) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return children, nil
}
