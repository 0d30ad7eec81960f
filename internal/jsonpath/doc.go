// Package jsonpath tells before anything runs whether a text is an SQL/JSON path predicate, as a condition on the payload of a signal is.
// Postgres alone decides what passes one: nothing is evaluated here. What is accepted is the grammar of PostgreSQL 18; an older server knows
// fewer methods, and says so when the condition is used.
package jsonpath
