// Package contracttest has one suite for all surfaces of pointsman: what is asked over HTTP, over NATS, in Go and on the command line has the
// same answers, and the same refusals.
package contracttest
