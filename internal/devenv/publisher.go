package devenv

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/subjects"
)

const (
	publishBatch   = 200
	publishTimeout = 5 * time.Second
	publishPause   = 100 * time.Millisecond // before what failed is sent again
	headerCopy     = "Shop-Copy"            // which copy of which event a message is
)

// publisher sends events until JetStream has each of them.
type publisher struct {
	js     jetstream.JetStream
	copies map[int]int // of each event, how many are out
	sent   atomic.Int64
	// dropped are the copies that a stream answered to know already. What of these it has nevertheless came with an attempt before,
	// whose answer was lost.
	dropped map[string]bool
}

func newPublisher(js jetstream.JetStream) *publisher {
	return &publisher{js: js, copies: map[int]int{}, dropped: map[string]bool{}}
}

// publish returns when all are acked. An outage is waited for; the error is the end of ctx.
func (p *publisher) publish(ctx context.Context, events []*event) error {
	for batch := range slices.Chunk(events, publishBatch) {
		left := make([]shopCopy, len(batch))
		for i, e := range batch {
			left[i] = shopCopy{e, p.copies[e.n]}
			p.copies[e.n]++
		}
		for len(left) > 0 {
			var err error
			if left, err = p.attempt(left); err == nil {
				continue
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("publish: %w: %w", context.Cause(ctx), err)
			case <-time.After(publishPause):
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// attempt sends copies together, and returns those that are not known to be there.
func (p *publisher) attempt(copies []shopCopy) (left []shopCopy, err error) {
	var acks []jetstream.PubAckFuture
	for _, c := range copies {
		ack, aerr := p.js.PublishMsgAsync(c.message())
		if aerr != nil {
			err = aerr
			break
		}
		acks = append(acks, ack)
	}
	timeout, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	for i, ack := range acks {
		select {
		case a := <-ack.Ok():
			p.sent.Add(1)
			if a.Duplicate {
				p.dropped[copies[i].id()] = true
			}
			continue
		case err = <-ack.Err():
		case <-timeout.Done():
			err = timeout.Err()
		}
		left = append(left, copies[i])
	}
	return append(left, copies[len(acks):]...), err
}

// shopCopy is one publication of an event.
type shopCopy struct {
	*event
	n int
}

// id is what a copy is found by in the streams.
func (c shopCopy) id() string { return fmt.Sprintf("%d.%d", c.event.n, c.n) }

func (c shopCopy) message() *nats.Msg {
	return &nats.Msg{Subject: c.subject, Data: []byte(c.body), Header: nats.Header{subjects.HeaderMsgID: {c.msgID}, headerCopy: {c.id()}}}
}

// eventOf is the number of the event that a copy is of.
func eventOf(copyID string) (n int, ok bool) {
	event, _, _ := strings.Cut(copyID, ".")
	n, err := strconv.Atoi(event)
	return n, err == nil
}
