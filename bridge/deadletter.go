package bridge

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/subjects"
)

// deadLetter is a message that can never be taken in, and why.
type deadLetter struct {
	route   string
	message *message
	reason  string
}

// deadLetters stores them.
type deadLetters struct {
	conn  *nats.Conn
	js    jetstream.JetStream
	space subjects.Space
}

// publishTimeout bounds the wait for the ack of a publication.
const publishTimeout = 5 * time.Second

// publish stores the letters and returns an error for each: nil when the stream has acked it, so that the original may be acked.
func (d *deadLetters) publish(ctx context.Context, letters []deadLetter) []error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	errs := make([]error, len(letters))
	var all sync.WaitGroup
	for i, l := range letters { // as many as a batch has
		all.Go(func() {
			if _, err := d.js.PublishMsg(ctx, l.publication(d.space, int(d.conn.MaxPayload()))); err != nil {
				errs[i] = fmt.Errorf("dead letter: %w", err)
			}
		})
	}
	all.Wait()
	return errs
}

// publication makes the message to publish: the original, and what is to be known about it.
func (l deadLetter) publication(space subjects.Space, maxPayload int) *nats.Msg {
	m := l.message
	msg := &nats.Msg{Subject: space.DeadLetter(l.route), Data: m.body, Header: quarantine(m.headers)}
	// The id names the route too: each route that refuses a message has a dead letter of its own.
	msg.Header.Set(subjects.HeaderMsgID, fmt.Sprintf("%s:%s@%d:%d", l.route, m.stream, m.created.UnixNano(), m.sequence))
	msg.Header.Set(subjects.HeaderReason, headerText(l.reason))
	msg.Header.Set(subjects.HeaderStream, m.stream)
	msg.Header.Set(subjects.HeaderSeq, strconv.FormatUint(m.sequence, 10))
	msg.Header.Set(subjects.HeaderSubject, m.subject)
	msg.Header.Set(subjects.HeaderDeliveries, strconv.FormatUint(m.deliveries, 10))
	msg.Header.Set(subjects.HeaderOrigin, fmt.Sprintf("%s %d %d", m.origin.Stream, m.origin.Created.UnixNano(), m.origin.Sequence))
	msg.Header.Set(subjects.HeaderTime, m.stored.UTC().Format(time.RFC3339Nano))
	fit(msg, maxPayload)
	return msg
}

// originalPrefix stands for "Nats-" in the headers of a dead letter.
const originalPrefix = "Pointsman-Original-"

// quarantine copies the headers of a message for its dead letter. Those that NATS acts upon (a dedup id, an expected sequence or
// stream, a rollup, a time to live) would act upon the dead letters: "Nats-X" becomes "Pointsman-Original-X".
func quarantine(h map[string][]string) nats.Header {
	const nats_ = "nats-"
	out := make(nats.Header, len(h)+8)
	for name, values := range h {
		if len(name) > len(nats_) && strings.EqualFold(name[:len(nats_)], nats_) {
			name = originalPrefix + name[len(nats_):]
		}
		out[name] = values
	}
	return out
}

// fit makes a dead letter small enough for the server, which takes maxPayload bytes of headers and body (0: not known). It gives up
// the end of the body first, then the original's headers, and says so in the reason.
func fit(msg *nats.Msg, maxPayload int) {
	const note = 128 // room for what is added to the headers
	size := headerSize(msg.Header)
	if maxPayload <= 0 || size+len(msg.Data) <= maxPayload {
		return
	}
	if size+note > maxPayload {
		kept := nats.Header{}
		for _, name := range []string{
			subjects.HeaderMsgID, subjects.HeaderReason, subjects.HeaderStream, subjects.HeaderSeq, subjects.HeaderSubject,
			subjects.HeaderDeliveries, subjects.HeaderOriginalMsgID, subjects.HeaderOrigin, subjects.HeaderTime,
		} {
			if v := msg.Header.Get(name); v != "" {
				kept.Set(name, v)
			}
		}
		kept.Set(subjects.HeaderReason, kept.Get(subjects.HeaderReason)+"; headers left out")
		kept.Add(subjects.HeaderCut, "headers")
		msg.Header, size = kept, headerSize(kept)
	}
	if room := max(0, maxPayload-size-note); len(msg.Data) > room {
		msg.Header.Set(subjects.HeaderReason,
			fmt.Sprintf("%s; body cut from %d to %d bytes", msg.Header.Get(subjects.HeaderReason), len(msg.Data), room))
		msg.Header.Add(subjects.HeaderCut, "body")
		msg.Data = msg.Data[:room]
	}
}

// headerSize is what headers take on the wire.
func headerSize(h nats.Header) int {
	n := len("NATS/1.0\r\n\r\n")
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(": \r\n") + len(v)
		}
	}
	return n
}

// headerText makes a text fit for a header: one line, bounded.
func headerText(s string) string {
	const most = 1024
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
