// Package bridge carries messages across the border between NATS JetStream and the engine: JetStream in through routes, the
// engine's outbox out through a relay. It knows no SQL; what it needs of the engine are [Inbox], [Journal] and [engine.Outbox].
//
//	b, err := bridge.New(bridge.Config{
//		Conn: conn, JetStream: js, Subjects: space,
//		Inbox: client, Journal: client, Outbox: client,
//		Routes: []bridge.Route{{
//			Name: "payments", Stream: "PAYMENTS", Subjects: []string{"payments.*.confirmed"},
//			Signal: "payment_confirmed", CorrelationKeys: []string{"order-{{subject[1]}}"},
//		}},
//	})
//	if err != nil {
//		return err
//	}
//	return b.Run(ctx)
//
// # In
//
// Each route reads its stream with a durable pull consumer that all copies of the bridge share. A message becomes signals, a start,
// nothing (its when: is false) or a rejection; batches of them go to [Inbox.Accept], and only what has been committed is acked.
// What can never be taken in goes to the dead letters, and is acked when the dead letter is stored. So an acked message is in an
// inbox, held, started, a duplicate of one of these, filtered, dropped as the route asks, or a dead letter.
//
// The bridge is at least once towards the inbox: a crash, a lost ack or a partition brings a message again, and it is the dedup key
// and the origin in each [engine.Intake] that make it happen once. Messages of one route reach the inbox in the order of the stream,
// except those that come again.
//
// An outage of NATS or Postgres is waited for. The batch in hand is kept (its acks are extended), nothing further is pulled, and no
// message's count of deliveries is touched.
//
// # Out
//
// The relay publishes the rows of the outbox at least once, with the same Nats-Msg-Id each time, and those of one instance in their
// order: one that fails holds up its own instance and no other.
//
// # Not here
//
// Neither requests (HTTP, NATS micro), nor webhooks, nor remote steps; an order across messages that are delivered again.
package bridge
