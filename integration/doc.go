// Package integration holds the tests of whole programs: built from this checkout, run as processes of their own on a real Postgres
// and a real nats-server, and killed. They know the contract and nothing of what is inside.
package integration
