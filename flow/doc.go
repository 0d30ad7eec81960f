// Package flow runs flows: processes that are written in YAML instead of Go, as a graph of steps (package internal/dag has its rules).
//
// # How a flow runs
//
// A flow is one machine of the engine, and an instance of it one row: the payload it was started with and what has become of each step are
// its state. A visit absorbs what has come (signals, events, updates, ends of children, times that are over), begins all steps that may
// begin, and commits once: the new state, what was absorbed, and the effects of the steps (publications, signals, starts, values, events) in one
// transaction. Then it parks on all that is waited for, in one await: the signals and updates by name, a trigger for each event and
// each sleep, and the ends of children. Whatever comes first wakes it; the triggers go on with the times that they have. Postgres alone says
// when a time is over.
//
// A call is asked for in the visit itself, with its output committed before anything else begins, where nothing else goes on in the
// flow: a row of calls is a commit each, as the steps of a machine in Go. Where something does, each call is an instance of its own, of
// the machine "<flow>:call", a child of the flow: it has its own lease, heartbeat, retries and history, runs on whatever worker has room, and its
// end comes into the flow's inbox in the transaction that ends it. So a slow call keeps nobody waiting, and no step runs twice at
// once: what executes a call holds the lease of its instance. A call whose worker is lost is asked again, with the same
// idempotency key, which is that of the step until it is compensated. The items of a list are such children, as many at once as the step says.
//
// When the flow has failed and nothing runs any more, what is done is compensated: one call after the other, each committed before the next is made. Only
// then does the instance end.
package flow
