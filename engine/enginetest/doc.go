// Package enginetest tests machines on a real Postgres, without waiting and without sleeping.
//
// [New] gives a test a schema of its own, which ends with it. Steps run in [Env.Drain], one after another, until nothing may run any
// more; time passes in [Env.Advance], as much as it is told; and [Env.Crash] runs a step as a worker does that is killed before it
// commits. So a deadline of a day, the fifth retry and a lost worker are a line of a test each, and take milliseconds:
//
//	func TestMain(m *testing.M) { enginetest.Main(m) }
//
//	func TestUnpaid(t *testing.T) {
//		t.Parallel()
//		env := enginetest.New(t, machine)
//		order := env.Start(engine.NewInstance{Machine: "order"})
//		env.Drain()
//		order.ExpectAwaiting("payment")
//		env.Advance(24 * time.Hour)
//		order.ExpectFailed("not paid in time")
//	}
//
// It is the engine that runs, with its own statements: what is not here is concurrency, and the network. [Env.Serve] runs a worker as
// in production, for tests that want these.
//
// # Postgres
//
// A test process starts one private server, from the server programs of the machine, and each Env is a schema of it. The variable
// POINTSMAN_TEST_DATABASE_URL names a database to use instead, by a role that may create schemas in it. Where no server can be had the test
// is skipped, and fails when the variable CI is "true". [Main] stops the server at the end; without it the server ends with the process
// (on Linux, however that ends), and its files stay until the next such server starts.
//
// # Other kinds of machines
//
// [Conformance] is the suite that every kind of machine passes: written in Go, or answered over NATS. A kind of machine is a [Host],
// which makes a machine of a [Script]; the suite says what its instances then have to come to:
//
//	func TestConformance(t *testing.T) {
//		enginetest.Conformance(t, func(t testing.TB, s enginetest.Script) *engine.Machine { … })
//	}
package enginetest
