package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/subjects"
)

// publication makes what goes out for a row of the outbox. The same row gives the same message each time.
func publication(space subjects.Space, p engine.Publication, maxPayload int) *nats.Msg {
	msg := &nats.Msg{Subject: p.Subject, Data: p.Body, Header: make(nats.Header, len(p.Headers)+9)}
	maps.Copy(msg.Header, p.Headers)
	switch p.Kind {
	case engine.PublishOutcome:
		describeOutcome(msg, space, p)
	case engine.PublishDeadLetter:
		msg.Subject, msg.Header = space.DeadLetter(p.Subject), quarantine(p.Headers)
		msg.Header.Set(subjects.HeaderMsgID, p.MsgID)
		msg.Header.Set(subjects.HeaderReason, headerText(msg.Header.Get(subjects.HeaderReason)))
		fit(msg, maxPayload)
	}
	if p.Kind == engine.PublishOutcome || p.Kind == engine.PublishReply {
		leaveOutResult(msg, maxPayload)
	}
	if msg.Header.Get(subjects.HeaderMsgID) == "" { // a step may have given a publication an id of its own
		msg.Header.Set(subjects.HeaderMsgID, p.MsgID)
	}
	return msg
}

// leaveOutResult makes the outcome of a large result small enough for the server, and says so: that an instance has ended is told in
// any case, and its result can be asked for.
func leaveOutResult(msg *nats.Msg, maxPayload int) {
	const note = 256 // room for what is added to the headers
	size := headerSize(msg.Header) + len(msg.Data)
	if maxPayload <= 0 || size+note <= maxPayload {
		return
	}
	var outcome map[string]json.RawMessage
	if json.Unmarshal(msg.Data, &outcome) != nil {
		return
	}
	outcome["result"] = json.RawMessage("null")
	if body, err := ident.Encode(outcome); err == nil {
		msg.Data = body
		msg.Header.Set(subjects.HeaderReason, fmt.Sprintf("result left out: the message would have %d bytes, and the server takes %d", size, maxPayload))
	}
}

// describeOutcome makes an outcome a CloudEvent in binary mode.
func describeOutcome(msg *nats.Msg, space subjects.Space, p engine.Publication) {
	machine, status, _ := strings.Cut(p.Subject, ".")
	msg.Subject = space.Outcome(p.Project, machine, status)
	values := make([]string, 0, 8) // of all headers, in one piece
	for _, h := range [...]struct{ name, value string }{
		{subjects.HeaderMsgID, p.MsgID},
		{subjects.HeaderContentType, "application/json"},
		{subjects.HeaderCESpecVersion, "1.0"},
		{subjects.HeaderCEID, p.MsgID},
		{subjects.HeaderCESource, "/" + space.Prefix() + "/" + p.Project + "/" + machine},
		{subjects.HeaderCEType, space.Prefix() + ".outcome." + status},
		{subjects.HeaderCESubject, p.InstanceID.String()},
		{subjects.HeaderCETime, p.CreatedAt.UTC().Format(time.RFC3339Nano)},
	} {
		values = append(values, h.value)
		msg.Header[h.name] = values[len(values)-1 : len(values) : len(values)]
	}
}

// reply sends a row to whoever waits for it, and returns when the server has it.
func (r *relay) reply(ctx context.Context, msg *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if err := r.conn.PublishMsg(msg); err != nil {
		return err
	}
	return r.conn.FlushWithContext(ctx)
}

// errNoStream: there is no stream of this subject, which is different from one that does not answer.
var errNoStream = errors.New("no stream has this subject")

// whyNoStream asks why nobody has answered a publication. That no stream has the subject is known only where JetStream says so.
func (r *relay) whyNoStream(ctx context.Context, subject string) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	stream, err := r.js.StreamNameBySubject(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return errNoStream
	case err != nil:
		return fmt.Errorf("%w, and which stream should have done so cannot be asked: %w", jetstream.ErrNoStreamResponse, err)
	}
	return fmt.Errorf("%w: the stream %s does not answer", jetstream.ErrNoStreamResponse, stream)
}

// publishFailure says what a failed publication means for its row.
type publishFailure int

const (
	unreachable publishFailure = iota // no connection: nothing is counted, it is tried again from here
	outage                            // nobody's publication would be stored now: tried again later, and never given up for
	refused                           // for what it is: tried again later, a number of times
	hopeless                          // never possible
)

// errCodeTooLarge is the server's code for a message that is larger than its stream takes.
const errCodeTooLarge jetstream.ErrorCode = 10054

// errCodeAccountLimit is the server's code for an account that has used up what it may store.
const errCodeAccountLimit jetstream.ErrorCode = 10002

func classify(s sent, connected bool) publishFailure {
	err := s.err
	var api *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrBadHeaderMsg):
		return hopeless
	case !connected, errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, context.Canceled):
		return unreachable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), errors.Is(err, jetstream.ErrAsyncPublishTimeout), errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrNoStreamResponse):
		return outage
	case !errors.As(err, &api):
		return refused
	case api.ErrorCode == errCodeTooLarge:
		return refused
	case api.Code >= 500, api.ErrorCode == errCodeAccountLimit: // full, or out of order
		return outage
	case s.row.Kind == engine.PublishOutcome, s.row.Kind == engine.PublishDeadLetter: // pointsman's own streams take whatever it sends, once they are as they should be
		return outage
	}
	return refused
}
