// Package subjects spells every NATS name that pointsman uses: subjects, streams, durable consumers and headers.
//
// A [Space] holds the names under one prefix:
//
//	names, err := subjects.New("pointsman")
//	if err != nil {
//		return err
//	}
//	nc.Publish(names.Wake("default"), nil)
//
// The package also has what is needed to reason about subjects without a server: [Tokens], [ValidSubject],
// [ValidFilter], [Match] and [Overlap]. They agree with nats-server on everything that they call valid, and
// refuse some spellings that the server takes but that are mistakes in practice, such as the filter "orders.new*".
//
// It imports the standard library only.
package subjects
