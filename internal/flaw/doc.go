// Package flaw breaks one rule of the system on purpose, to see that the tests of the guarantees would notice.
//
// It does so only in builds with the tag "sabotage", for the rule that POINTSMAN_SABOTAGE names. In all others [Is] is false at compile time,
// and what it guards is not in the program.
package flaw

// What can be broken.
const (
	DropSignal = "drop-signal" // the bridge acks every 20th message of a stream and forgets it
	NoFence    = "no-fence"    // a commit counts whatever lease and rev it was picked with
	AckFirst   = "ack-first"   // the bridge acks before it has taken anything in
	NoRecheck  = "no-recheck"  // who parks does not look for what has come meanwhile
)
