package stories

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/integration/oracle"
)

// Window is how long the streams of stories remember the ids of messages.
const Window = 200 * time.Millisecond

// How long one attempt waits for an answer, and how long until the next.
const (
	answerTimeout = 3 * time.Second
	nextAttempt   = 100 * time.Millisecond
)

// Player plays one process.
type Player struct {
	Conn    *nats.Conn
	JS      jetstream.JetStream
	Account *oracle.Account
	Rand    *rand.Rand
	Key     string // "<story>-<number>"
	Token   string // the number, for subjects
	events  int
}

// event is a message of the player's process.
type event struct {
	oracle.Event
	subject string
	body    map[string]any // with the event's id; nil: raw
	raw     []byte
	msgID   string // "": the event's id; "-": none, which must not come twice
}

// id of the player's next event.
func (p *Player) id(what string) string {
	p.events++
	return fmt.Sprintf("%s/%d-%s", p.Key, p.events, what)
}

// signal is a message for the player's instance.
func (p *Player) signal(subject, name string, want oracle.Want, body map[string]any) event {
	return event{Event: oracle.Event{ID: p.id(name), Key: p.Key, Name: name, Want: want}, subject: subject, body: body}
}

// subject of the player's messages.
func (p *Player) subject(story, what string) string {
	return "stories." + story + "." + p.Token + "." + what
}

// publish has events happen, each once, in this order.
func (p *Player) publish(ctx context.Context, es ...event) error {
	for _, e := range es {
		p.Account.Expect(e.Event)
	}
	return p.again(ctx, es...)
}

// again publishes messages of events that have happened.
func (p *Player) again(ctx context.Context, es ...event) error {
	for _, e := range es {
		if err := p.send(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// send until the stream has it. It may have it twice then, in which case a relation of its own is for the bridge to find out.
func (p *Player) send(ctx context.Context, e event) error {
	msg := nats.NewMsg(e.subject)
	msg.Header.Set(oracle.HeaderEvent, e.ID)
	switch e.msgID {
	case "":
		msg.Header.Set(nats.MsgIdHdr, e.ID)
	case "-":
	default:
		msg.Header.Set(nats.MsgIdHdr, e.msgID)
	}
	if msg.Data = e.raw; e.body != nil || e.raw == nil {
		body := map[string]any{"event": e.ID}
		for k, v := range e.body {
			body[k] = v
		}
		var err error
		if msg.Data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	for {
		call, cancel := context.WithTimeout(ctx, answerTimeout)
		ack, err := p.JS.PublishMsg(call, msg)
		cancel()
		if err == nil {
			if !ack.Duplicate {
				p.Account.Acked(e.ID)
			}
			return nil
		}
		if err := p.pause(ctx, nextAttempt); err != nil {
			return err
		}
	}
}

// pause lets time pass: it is pace, and nothing is waited for.
func (p *Player) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// outsideWindow returns when the streams have forgotten the ids of what was published before.
func (p *Player) outsideWindow(ctx context.Context) error { return p.pause(ctx, Window*3/2) }

// until something is in the account.
func (p *Player) until(ctx context.Context, so func() bool) error {
	for {
		news := p.Account.News()
		if so() {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ended waits for the end of an instance of the key.
func (p *Player) ended(ctx context.Context, key string) error {
	return p.until(ctx, func() bool { return p.Account.Ended(key) })
}

// ask starts an instance by request, until it is answered. A refusal says something only when no request before it went without an answer,
// which may be carried out late.
func (p *Player) ask(ctx context.Context, e oracle.Event, start map[string]any) (started bool, err error) {
	p.Account.Expect(e)
	start["state"] = map[string]any{"event": e.ID}
	var answer struct {
		ID string `json:"id"`
	}
	reply, err := p.request(ctx, "start", start, e.ID)
	var refused *refusal
	switch {
	case errors.As(err, &refused) && refused.Code == "conflict":
		if !refused.unsure {
			p.Account.Answered(e.ID, oracle.Answer{})
		}
		return false, nil
	case err != nil:
		return false, err
	}
	if err := json.Unmarshal(reply, &answer); err != nil || answer.ID == "" {
		return false, fmt.Errorf("answer to a start: %v: %s", err, reply)
	}
	p.Account.Answered(e.ID, oracle.Answer{Instance: answer.ID})
	return true, nil
}

// refusal is an answer that is an error.
type refusal struct {
	Code, Message string
	unsure        bool // a request before it had no answer
}

func (r *refusal) Error() string { return r.Code + ": " + r.Message }

// request until there is an answer. Its error may be a [*refusal].
func (p *Player) request(ctx context.Context, verb string, body any, idempotencyKey string) ([]byte, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	for unsure := false; ; {
		msg := nats.NewMsg("pointsman.api." + verb)
		msg.Data = data
		if idempotencyKey != "" {
			msg.Header.Set("Idempotency-Key", idempotencyKey)
		}
		call, cancel := context.WithTimeout(ctx, answerTimeout)
		reply, err := p.Conn.RequestMsgWithContext(call, msg)
		cancel()
		switch {
		case errors.Is(err, nats.ErrNoResponders): // nobody has it
		case err != nil:
			unsure = true
		case reply.Header.Get("Nats-Service-Error-Code") == "":
			return reply.Data, nil
		default:
			var e struct {
				Error refusal `json:"error"`
			}
			if err := json.Unmarshal(reply.Data, &e); err != nil {
				return nil, fmt.Errorf("answer to %s: %w: %s", verb, err, reply.Data)
			}
			if e.Error.Code != "unavailable" {
				e.Error.unsure = unsure
				return nil, &e.Error
			}
			unsure = true
		}
		if err := p.pause(ctx, nextAttempt); err != nil {
			return nil, err
		}
	}
}

// chance is true in n of 100 cases.
func (p *Player) chance(n int) bool { return p.Rand.IntN(100) < n }
