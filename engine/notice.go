package engine

import (
	"slices"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

// Topics of notices. Whoever has committed a change of instances tells of it, once a transaction. What only a signal, a time-out or a pick
// does to an instance is not told of: the commit of the step that runs for it follows, and intake stays free of notices.
const (
	noticeEnded   = "ended"
	noticeChanged = "changed" // and goes on

	noticeTriggers = "triggers" // of triggers that have ended
)

// tell gives notice to who waits here and in other processes.
func (c *Client) tell(topic string, ids []uuid.UUID) {
	if len(ids) == 0 {
		return
	}
	if topic == noticeTriggers {
		c.watched.heard(topic, ids)
	} else {
		c.waits.heard(topic, ids)
	}
	if c.waker != nil {
		c.waker.Tell(topic, ids)
	}
}

// toldTriggers counts triggers that have ended, and gives notice of them.
func (c *Client) toldTriggers(ended []store.EndedTrigger) {
	ids := make([]uuid.UUID, len(ended))
	for i, e := range ended {
		ids[i] = e.ID
		c.metrics.triggerEnded(e)
	}
	if slices.ContainsFunc(ended, func(e store.EndedTrigger) bool { return e.Notifies }) {
		c.Wake(WebhooksQueue)
	}
	c.tell(noticeTriggers, ids)
}

// tellOf gives notice of a group that has been committed. Of an outcome that did not count it is needless, and harmless.
func (c *Client) tellOf(group []finished) {
	ids := make([]uuid.UUID, len(group))
	ended, changed := 0, len(group)
	for i := range group {
		switch o := &group[i].outcome; o.Kind {
		case store.OutcomeDone, store.OutcomeStop:
			ids[ended] = o.ID
			ended++
		default:
			changed--
			ids[changed] = o.ID
		}
	}
	c.tell(noticeEnded, ids[:ended])
	c.tell(noticeChanged, ids[changed:])
}

// told tells of one instance, unless nothing was done to it.
func (c *Client) told(in Instance, err error) error {
	if err == nil {
		c.tell(noticeChanged, []uuid.UUID{in.ID})
	}
	return err
}
