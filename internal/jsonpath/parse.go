package jsonpath

import (
	"fmt"
	"slices"
	"strings"
)

// Check says what is wrong with a text as a predicate; nil: nothing. A path that gives a value instead of true or false is none, as nothing would ever
// pass it. A mode (strict, lax) and variables are not for conditions.
func Check(src string) (err *Error) {
	defer func() {
		if e, ok := recover().(*Error); ok {
			err = e
		}
	}()
	p := &parser{src: src, tokens: scan(src)}
	if p.is("strict") || p.is("lax") {
		p.fail("%s is not for conditions: leave it out", p.tokens[0].text)
	}
	predicate := p.or()
	if p.peek().kind != end {
		p.unexpected("an operator, or the end")
	}
	if !predicate {
		fail(src, 0, "is no condition, as it gives a value: compare it with something, as in $.amount >= 100, or ask exists($.amount)")
	}
	return nil
}

// maxDepth of parentheses and filters.
const maxDepth = 100

// parser descends. Each of its methods says whether what it has read is a predicate; else it is an expression.
type parser struct {
	src       string
	tokens    []token
	depth     int
	filter    int // how many filters it is in: there is an @
	subscript int // how many subscripts: there is a last
}

func (p *parser) peek() token { return p.tokens[0] }

func (p *parser) next() token {
	t := p.tokens[0]
	if t.kind != end {
		p.tokens = p.tokens[1:]
	}
	return t
}

// is says whether a keyword or a mark comes. Keywords are those in small letters, but for true, false and null, where Postgres wants that too.
func (p *parser) is(text string) bool {
	t := p.peek()
	switch t.kind {
	case word:
		return strings.EqualFold(t.text, text) && (t.text == text || !slices.Contains([]string{"true", "false", "null"}, text))
	case mark:
		return t.text == text
	}
	return false
}

func (p *parser) take(text string) bool {
	if p.is(text) {
		p.next()
		return true
	}
	return false
}

func (p *parser) want(text string) {
	if !p.take(text) {
		p.unexpected(text)
	}
}

func (p *parser) fail(format string, args ...any) {
	fail(p.src, p.peek().at, fmt.Sprintf(format, args...))
}

func (p *parser) unexpected(want string) {
	if p.peek().kind == end {
		p.fail("ends too early: want %s", want)
	}
	p.fail("%s is not expected here: want %s", p.peek().text, want)
}

func (p *parser) or() bool { return p.both("||", func() bool { return p.both("&&", p.not) }) }

// both reads operands of an operator between predicates.
func (p *parser) both(operator string, operand func() bool) bool {
	at := p.peek().at
	predicate := operand()
	for p.is(operator) {
		if !predicate {
			fail(p.src, at, "is a value, and "+operator+" stands between conditions")
		}
		p.next()
		at = p.peek().at
		if !operand() {
			fail(p.src, at, "is a value, and "+operator+" stands between conditions")
		}
	}
	return predicate
}

func (p *parser) not() bool {
	if !p.take("!") {
		return p.comparison()
	}
	if !p.is("(") && !p.is("exists") {
		p.unexpected("( or exists after !")
	}
	at := p.peek().at
	if !p.primary() {
		fail(p.src, at, "is a value, and ! stands before a condition")
	}
	return true
}

func (p *parser) comparison() bool {
	if p.sum() {
		return true
	}
	switch {
	case slices.Contains([]string{"==", "!=", "<>", "<", "<=", ">", ">="}, p.peek().text) && p.peek().kind == mark:
		p.next()
		at := p.peek().at
		if p.sum() {
			fail(p.src, at, "is a condition, and a value is compared with another value")
		}
		return true
	case p.is("=") || p.is("&") || p.is("|"):
		p.fail("%s is no operator: want %[1]s%[1]s", p.peek().text)
	case p.take("starts"):
		p.want("with")
		p.text()
		return true
	case p.take("like_regex"):
		p.text()
		if p.take("flag") {
			p.text()
		}
		return true
	}
	return false
}

func (p *parser) text() {
	if p.peek().kind != quoted {
		p.unexpected(`text in "quotes"`)
	}
	p.next()
}

func (p *parser) sum() bool { return p.arithmetic([]string{"+", "-"}, p.product) }

func (p *parser) product() bool { return p.arithmetic([]string{"*", "/", "%"}, p.sign) }

func (p *parser) arithmetic(operators []string, operand func() bool) bool {
	at := p.peek().at
	predicate := operand()
	for p.peek().kind == mark && slices.Contains(operators, p.peek().text) {
		if predicate {
			fail(p.src, at, "is a condition, and "+p.peek().text+" wants numbers")
		}
		operator := p.next().text
		at = p.peek().at
		if operand() {
			fail(p.src, at, "is a condition, and "+operator+" wants numbers")
		}
	}
	return predicate
}

func (p *parser) sign() bool {
	if !p.is("+") && !p.is("-") {
		return p.primary()
	}
	p.next()
	at := p.peek().at
	if p.sign() {
		fail(p.src, at, "is a condition, and a sign stands before a number")
	}
	return false
}

// primary is a value with what is taken of it, or a predicate in parentheses.
func (p *parser) primary() bool {
	if p.depth++; p.depth > maxDepth {
		p.fail("is nested deeper than %d times", maxDepth)
	}
	defer func() { p.depth-- }()
	switch t := p.peek(); {
	case p.take("("):
		predicate := p.or()
		p.want(")")
		if predicate && p.take("is") {
			p.want("unknown")
			return true
		}
		return p.accessors() == 0 && predicate
	case p.is("exists") && p.tokens[1].text == "(":
		p.next()
		p.next()
		at := p.peek().at
		if p.or() {
			fail(p.src, at, "is a condition, and exists wants a path")
		}
		p.want(")")
		return true
	case t.kind == quoted, t.kind == number, p.is("true"), p.is("false"), p.is("null"):
		p.next()
	case p.take("$"):
	case t.kind == variable:
		p.fail("%s is a variable, and a condition has none: a field of the payload is $.%s", t.text, t.text[1:])
	case p.is("@"):
		if p.filter == 0 {
			p.fail("@ is what a filter looks at, and there is none around it: the payload is $")
		}
		p.next()
	case p.is("last"):
		if p.subscript == 0 {
			p.fail("last is only in the subscripts of an array")
		}
		p.next()
	default:
		p.unexpected("a path, as $.amount, or a value")
	}
	p.accessors()
	return false
}

// accessors reads what is taken of a value, and counts them.
func (p *parser) accessors() (n int) {
	for ; ; n++ {
		switch {
		case p.take("["):
			p.subscripts()
		case p.take("?"):
			p.want("(")
			p.filter++
			at := p.peek().at
			if !p.or() {
				fail(p.src, at, "is a value, and a filter wants a condition")
			}
			p.filter--
			p.want(")")
		case p.take("."):
			p.member()
		default:
			return n
		}
	}
}

func (p *parser) subscripts() {
	p.subscript++
	defer func() { p.subscript-- }()
	if p.take("*") {
		p.want("]")
		return
	}
	for {
		for first := true; first || p.take("to"); first = false {
			at := p.peek().at
			if p.sum() {
				fail(p.src, at, "is a condition, and a subscript is a number")
			}
		}
		if !p.take(",") {
			p.want("]")
			return
		}
	}
}

// member is what comes after a dot.
func (p *parser) member() {
	t := p.peek()
	switch {
	case p.take("*"):
	case p.take("**"):
		if p.take("{") {
			p.level()
			if p.take("to") {
				p.level()
			}
			p.want("}")
		}
	case t.kind == quoted:
		p.next()
	case t.kind == word:
		p.next()
		if p.is("(") {
			p.method(t)
		}
	default:
		p.unexpected("the name of a field")
	}
}

func (p *parser) level() {
	if !p.take("last") && p.peek().kind != number {
		p.unexpected("a number of levels, or last")
	} else if p.peek().kind == number {
		p.next()
	}
}

// methods, with how many arguments they may have.
var methods = map[string]int{
	"abs": 0, "size": 0, "type": 0, "floor": 0, "ceiling": 0, "double": 0, "keyvalue": 0, "bigint": 0, "boolean": 0, "date": 0, "integer": 0, "number": 0, "string": 0,
	"datetime": 1, "time": 1, "time_tz": 1, "timestamp": 1, "timestamp_tz": 1, "decimal": 2,
}

func (p *parser) method(name token) {
	most, known := methods[name.text]
	if !known {
		fail(p.src, name.at, "there is no method "+name.text+"()")
	}
	p.want("(")
	for n := 0; !p.is(")"); n++ {
		if n > 0 {
			p.want(",")
		}
		if n == most {
			p.fail("%s() has at most %d arguments", name.text, most)
		}
		p.take("-")
		if t := p.peek(); t.kind != quoted && t.kind != number {
			p.unexpected("a number or text in quotes")
		}
		p.next()
	}
	p.want(")")
}
