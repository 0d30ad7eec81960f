// Package guarantees tests the guarantees of pointsman with built programs on a cluster, under faults: docs/guarantees.md.
package guarantees
