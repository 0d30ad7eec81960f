// Package cluster runs a whole pointsman for a test: NATS servers, a Postgres with a standby, poolers, bridges and workers, and does to it
// what happens to such things: kill -9, pauses, links that are cut or slow, failover, a stream that is full, upgrades.
//
//	c := cluster.Start(t, cluster.Config{NATS: 3, Standby: true, Bridges: 2, Workers: 2, Config: yaml})
//	fault, err := c.Kill(ctx, c.Bridges()[0])
//	…
//	err = fault.Heal(ctx)
//
// Members are containers or local processes: one interface, the same faults. Every connection between two of them, and every one of the
// test's own, goes over a proxy (Toxiproxy), so that each link can be cut by itself. Faults may be made from any goroutine and at the same
// time; two on the same member exclude each other, the second is an error.
//
// Nothing outlives the test. What a test process that was killed left behind in Docker is removed by the next one.
package cluster
