package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	pullExpiry    = 30 * time.Second
	pullHeartbeat = 5 * time.Second // a consumer that is gone without a word is noticed after two
	minPullBytes  = 8 << 20

	// A bridge that stands still, and is not gone for the server, is given messages of an ordered route for so long: those who hold the
	// route after it wait for them.
	orderedPullExpiry    = 3 * time.Second
	orderedPullHeartbeat = time.Second
)

// consume pulls from the route's consumer until ctx is cancelled (nil) or something fails. What the server has sent here by then is
// read, instead of after AckWait by another copy.
func (r *reader) consume(ctx, work context.Context) error {
	for {
		closed, err := r.subscribe(ctx, work)
		select {
		case <-closed:
			r.unpark()
		default: // work is done, and nobody waits for what is left
		}
		if !errors.Is(err, errStuck) {
			return err
		}
	}
}

// errStuck: what was read is parked. To be read on when it is not.
var errStuck = errors.New("nobody takes what is read")

// subscribe pulls until ctx is cancelled (nil), something fails, or something is parked. closed is closed when nothing more can come.
func (r *reader) subscribe(ctx, work context.Context) (closed <-chan struct{}, err error) {
	expiry, heartbeat := pullExpiry, pullHeartbeat
	if r.order != nil {
		expiry, heartbeat = orderedPullExpiry, orderedPullHeartbeat
	}
	// Consume, not Messages: the iterator's channel has room for the messages that were asked for and none for the server's notes
	// among them, so it drops some when nobody reads for a while, as in an outage of the inbox.
	var cc jetstream.ConsumeContext
	begun := make(chan struct{})
	r.halt = func() { <-begun; cc.Drain() } // before this callback returns, and the next pull follows: what came for that nobody would read
	cc, err = r.binding.consumer.Consume(r.receive,
		// What one pull may bring is bounded above the largest message, or the consumer would stand still before that one.
		jetstream.PullMaxMessagesWithBytesLimit(r.route.Batch.Size, max(minPullBytes, 2*int(r.conn.MaxPayload()))),
		jetstream.PullExpiry(expiry), jetstream.PullHeartbeat(heartbeat), jetstream.ConsumeErrHandler(r.trouble),
	)
	if err != nil {
		return nil, fmt.Errorf("pull: %w", err)
	}
	closed = cc.Closed() // asked for now: after the end it would not wait for the last callback
	close(begun)
	err = r.wait(ctx, closed)
	if r.conn.IsConnected() {
		cc.Drain()
	} else {
		cc.Stop() // there is nothing to wait for
	}
	select {
	case <-closed:
	case <-work.Done():
	}
	return closed, err
}

// wait until there is nothing more to read: ctx is cancelled (nil), or something failed.
func (r *reader) wait(ctx context.Context, closed <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return nil
	case <-r.ctx.Done():
		return nil
	case err := <-r.failed:
		return err
	case <-r.stuck:
		return errStuck
	case <-closed:
	}
	select {
	case <-r.stuck: // and closed for that
		return errStuck
	default:
		return errors.New("pull: the subscription was closed")
	}
}

// receive is the callback of the subscription.
func (r *reader) receive(msg jetstream.Msg) {
	meta, err := msg.Metadata()
	if err != nil {
		r.fail(fmt.Errorf("metadata of a message: %w", err))
		return
	}
	r.read(msg, &message{
		subject: msg.Subject(), headers: msg.Headers(), body: msg.Data(),
		stream: meta.Stream, sequence: meta.Sequence.Stream, stored: meta.Timestamp, deliveries: meta.NumDelivered,
	}, meta.Sequence.Consumer)
}

// trouble is told what the server says beside messages, and what the client notices. Only what leaves no hope for this subscription
// ends the session: a message may pose as a note of the server, and one that is lost shows in missing heartbeats.
func (r *reader) trouble(_ jetstream.ConsumeContext, err error) {
	for _, end := range []error{
		jetstream.ErrNoHeartbeat, jetstream.ErrConsumerDeleted, jetstream.ErrBadRequest, jetstream.ErrConnectionClosed, nats.ErrNoResponders,
	} {
		if errors.Is(err, end) {
			r.fail(fmt.Errorf("pull: %w", err))
			return
		}
	}
	r.log.Debug("pull", "error", err)
}

// pullExisting is consume for a consumer that others made, with the right to pull from it and no other. It goes by the older of the
// client's two interfaces, as the newer one asks for the consumer's configuration first.
func (r *reader) pullExisting(ctx, _ context.Context) error {
	var opts []nats.JSOpt
	if domain := r.js.Options().Domain; domain != "" {
		opts = append(opts, nats.Domain(domain))
	}
	js, err := r.conn.JetStream(opts...)
	if err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	sub, err := js.PullSubscribe("", "", nats.Bind(r.route.Stream, r.route.Existing), nats.SkipConsumerLookup())
	if err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection is gone, or it works
	for ctx.Err() == nil && r.ctx.Err() == nil {
		if err := r.fetch(ctx, sub); err != nil && ctx.Err() == nil {
			return fmt.Errorf("pull from consumer %s of stream %s: %w", r.route.Existing, r.route.Stream, err)
		}
	}
	return nil
}

// fetch waits for messages, as many as a batch may have, and reads them as they come.
func (r *reader) fetch(ctx context.Context, sub *nats.Subscription) error {
	ctx, cancel := context.WithTimeout(ctx, pullExpiry)
	defer cancel()
	batch, err := sub.FetchBatch(r.route.Batch.Size, nats.Context(ctx))
	if err != nil {
		return err
	}
	for msg := range batch.Messages() {
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("metadata of a message: %w", err)
		}
		r.read(boundMsg{msg}, &message{
			subject: msg.Subject, headers: msg.Header, body: msg.Data,
			stream: meta.Stream, sequence: meta.Sequence.Stream, stored: meta.Timestamp, deliveries: meta.NumDelivered,
		}, meta.Sequence.Consumer)
	}
	r.unpark()
	if err := batch.Error(); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// boundMsg is a message of the older interface.
type boundMsg struct{ *nats.Msg }

func (m boundMsg) Ack() error                         { return m.Msg.Ack() }
func (m boundMsg) InProgress() error                  { return m.Msg.InProgress() }
func (m boundMsg) NakWithDelay(d time.Duration) error { return m.Msg.NakWithDelay(d) }
