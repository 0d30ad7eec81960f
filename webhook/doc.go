// Package webhook sends the webhooks that are written beside what they tell of: ends of instances, and triggers that have been received.
//
//	sender, err := webhook.New(webhook.Config{Deliveries: client, Secrets: []string{secret}})
//	go sender.Run(ctx)
//
// A receiver gets each at least once, under an id that stays the same, signed by the scheme of Standard Webhooks. An answer of 2xx is the
// end of it. What else an answer, or none, means is told in docs/webhooks.md.
//
// Any number of senders may run: they share the work. One that is killed leaves its webhooks to the others, a while later. A receiver that
// fails keeps none waiting but its own.
package webhook
