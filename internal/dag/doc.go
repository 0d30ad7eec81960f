// Package dag is what a flow is, and how it goes on: steps, what they depend on, and what becomes of them. It does nothing itself. A [Run]
// says of a [State] and of what has happened what is to be done next, and whoever asks does it: package flow with the engine, NATS and
// HTTP, the command line's simulation with answers that it is told.
//
// # The rules
//
// A step begins when each step that it depends on is settled: done, or skipped by its own condition, or failed with on_failure: continue.
// Where its condition is false it is skipped. A step that fails does with the flow what its on_failure says. fail_workflow: nothing more
// begins, and the flow fails when what runs has ended. skip_dependents: all that depend on it, on whatever way, are skipped.
// continue: they run, and find its status and error. Steps that do not depend on each other run beside each other.
//
// A step with a list is done for each item, some beside each other; it is settled with the last of them. When a flow has failed and nothing of it
// runs any more, the steps that are done are compensated, the last one first and one after the other.
package dag
