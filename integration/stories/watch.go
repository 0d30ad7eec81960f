package stories

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/integration/oracle"
)

// Watch reads all that is published into an account, while NATS comes and goes.
type Watch struct {
	js      jetstream.JetStream
	account *oracle.Account

	mu   sync.Mutex
	read map[string]uint64 // the last sequence of each stream
	err  error             // what cannot be read at all
}

// NewWatch watches the streams of the stories, of the outcomes and of the dead letters.
func NewWatch(js jetstream.JetStream, account *oracle.Account) *Watch {
	return &Watch{js: js, account: account, read: map[string]uint64{Stream: 0, OrderedStream: 0, RecordStream: 0, "POINTSMAN_OUTCOMES": 0, "POINTSMAN_DLQ": 0}}
}

// Run watches until ctx is canceled.
func (w *Watch) Run(ctx context.Context) {
	var all sync.WaitGroup
	for stream := range maps.Clone(w.read) { // the followers write to it
		all.Go(func() { w.follow(ctx, stream) })
	}
	all.Wait()
}

// follow a stream from its first message. What goes wrong on the way is tried again from the last one that was read.
func (w *Watch) follow(ctx context.Context, stream string) {
	for ctx.Err() == nil {
		w.session(ctx, stream)
		select {
		case <-ctx.Done():
		case <-time.After(nextAttempt):
		}
	}
}

func (w *Watch) session(ctx context.Context, stream string) {
	call, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	c, err := w.js.OrderedConsumer(call, stream, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: w.at(stream) + 1})
	if err != nil {
		return
	}
	for ctx.Err() == nil {
		batch, err := c.Fetch(500, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			return
		}
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil || meta.Sequence.Stream <= w.at(stream) {
				continue
			}
			// On its way from a server that dies a message is lost without a word, and a fetch does not look for it. What the first one of a
			// consumer is behind is a gap that the stream has.
			if meta.Sequence.Stream != w.at(stream)+1 && meta.Sequence.Consumer != 1 {
				return
			}
			if err := w.take(stream, meta.Sequence.Stream, m); err != nil {
				w.mu.Lock()
				w.err = errors.Join(w.err, err)
				w.mu.Unlock()
			}
			w.mu.Lock()
			w.read[stream] = meta.Sequence.Stream
			w.mu.Unlock()
		}
		if batch.Error() != nil {
			return
		}
	}
}

func (w *Watch) at(stream string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.read[stream]
}

func (w *Watch) take(stream string, seq uint64, m jetstream.Msg) error {
	h := m.Headers()
	switch stream {
	case RecordStream, "POINTSMAN_OUTCOMES", "POINTSMAN_DLQ":
		w.account.Found(h.Get(nats.MsgIdHdr))
	}
	switch stream {
	case RecordStream:
		return w.account.Record(h.Get(nats.MsgIdHdr), m.Data())
	case "POINTSMAN_OUTCOMES":
		return noteOutcome(w.account, h.Get(nats.MsgIdHdr), m.Data())
	case "POINTSMAN_DLQ":
		w.account.Letter(oracle.Letter{
			MsgID: h.Get(nats.MsgIdHdr), Event: h.Get(oracle.HeaderEvent), Reason: h.Get("Pointsman-Reason"),
			Place: h.Get("Pointsman-Stream") + ":" + h.Get("Pointsman-Seq"),
		})
	default:
		w.account.Store(oracle.Stored{Stream: stream, Seq: seq, Event: h.Get(oracle.HeaderEvent)})
	}
	return nil
}

func noteOutcome(account *oracle.Account, msgID string, body []byte) error {
	var o struct {
		InstanceID string `json:"instance_id"`
		Status     string `json:"status"`
		Reason     string `json:"reason"`
		Result     struct {
			Link string `json:"link"`
		} `json:"result"`
	}
	if err := json.Unmarshal(body, &o); err != nil {
		return fmt.Errorf("outcome %s: %w: %s", msgID, err, body)
	}
	link := o.Result.Link
	if o.Status != "done" {
		link = o.Reason
	}
	account.Outcome(oracle.Outcome{MsgID: msgID, Instance: o.InstanceID, Status: o.Status, Link: link, Body: string(body)})
	return nil
}

// CaughtUp reports whether all that the streams have was read. Its error is what cannot be read.
func (w *Watch) CaughtUp(ctx context.Context) (bool, error) {
	w.mu.Lock()
	err := w.err
	w.mu.Unlock()
	if err != nil {
		return false, err
	}
	for stream := range maps.Clone(w.read) { // the followers write to it
		s, err := w.js.Stream(ctx, stream)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return false, nil // NATS is away
		}
		if s.CachedInfo().State.LastSeq > w.at(stream) {
			return false, nil
		}
	}
	return true, nil
}
