// Package engine has state machines that wait for signals, the workers that run them, and the client that starts and steers their instances.
//
// [Define] makes a [Machine] of steps. A [Worker] picks instances that are ready, runs the step of each, and commits the [Outcome] in one
// transaction with the new state, the signals that it consumed, and all that it wants to be sent: [Await] parks the instance on names of
// signals, [Next] goes on, [Replay] does the step again, [Done] and [Stop] end. The methods of [Outcome] say what can go with it: deadlines,
// updates, events and children that are awaited too, publications, signals and starts.
//
// A [Client] starts, signals, updates, cancels, retries and reads. Its methods that end in Tx do so inside a transaction of the caller's.
// A machine is tested with package enginetest.
package engine
