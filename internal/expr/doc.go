// Package expr compiles and evaluates the templates and conditions of the configuration. It alone imports CEL.
//
// A template is literal text with expressions in {{ }}: "order-{{subject[1]}}". A condition is one expression that
// gives a boolean: payload.amount > 0. Both see
//
//	payload   the JSON document of the message
//	headers   its headers, name to first value
//	subject   the tokens of its subject, from 0
//	msg       stream, seq, time and subject
//
// with CEL's standard functions, its string functions (split, replace, lowerAscii, …), base64, and optional
// selection: payload.?name.orValue("nobody").
//
// # Numbers
//
// A number of the payload keeps the text that the JSON has, so an identifier of 12345678901234567890 or a price of 1.10
// is rendered as it was written. Comparison and arithmetic with such a number are exact decimal, and mix integers and
// decimals freely. A number that CEL itself made, as by double(), is what CEL makes of it.
//
// # Cost
//
// A payload is never decoded as a whole: it is scanned for what an expression asks of it. A template that only follows
// a path (payload.order.id, headers["X"], subject[1], msg.seq) does not enter CEL. Any other evaluation
// ends with an error when its cost, in CEL's units, exceeds a bound that no sensible route reaches.
package expr
