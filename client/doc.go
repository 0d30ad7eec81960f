// Package client speaks the HTTP API of pointsman, for programs that have neither its database nor its NATS server at hand.
//
//	c, err := client.New(client.Config{URL: "http://127.0.0.1:8080", Token: os.Getenv("TOKEN")})
//	in, err := c.Start(ctx, client.NewInstance{Machine: "order", CorrelationKey: "order-1001"})
//	done, err := c.Signal(ctx, client.ByKey("order-1001"), "payment", map[string]any{"amount": 42}, "pay-7")
//	in, err = c.Wait(ctx, client.ByKey("order-1001"))
//
// Each call of docs/requests.md has a method: those of instances take a [Ref], those of triggers the key of their event.
//
//	verdict, err := c.Update(ctx, client.ByKey("expense-7"), client.NewUpdate{Name: "decision", Arg: decision, Wait: 5 * time.Second})
//	sent, err := c.SendEvent(ctx, "approval:order-789", map[string]any{"approved": true}, 0)
//
// A request that the server could not answer (503), or that never got there, is sent again, with growing pauses, where a second one does no
// harm: reads, what has an idempotency key, and what may be sent twice anyway. A refusal is an [*Error] with the contract's code.
// Programs in other languages have their client generated from /openapi.json.
package client
