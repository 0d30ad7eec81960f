// Package oracle judges a running pointsman by what went in and what came out. It keeps its own account: what was published, as the streams
// have it, what the machines of package stories say that they consumed, and the outcomes and dead letters that were published. It imports
// nothing of pointsman, and asks it for nothing but whether it has come to rest, and what sleeps then.
//
// What a machine consumed leaves the system as a [Record], a message that its step publishes with its outcome. Records of one instance are a
// chain: each names the one before by a [Record.Link] that is kept in the instance's state, is different for every execution, and is in the
// result when the instance ends. A commit that counts twice, or that a worker makes which has lost its lease, is a fork of the chain; state
// without its effects, or effects without their state, is a gap in it.
//
// Records, outcomes and dead letters come from the streams that have them. What left the outbox and is in no stream is known from a table that
// package stories keeps beside the outbox, so that something that a stream has lost is told apart from something that was never done.
//
// Every check is a function of the account alone, and has a test that shows it an account that is wrong.
package oracle
