package jsonpath

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var good = []string{
	`$ > 1`, `$.amount >= 100 && $.currency == "EUR"`, `exists($.a)`, `!exists($.a.b[*] ? (@ > 3 && @.c != null))`, `($.a == 1)`, `($.a == 1 || $.b <> -2) is unknown`,
	`$."a b".c like_regex "^x" flag "i"`, `$.name starts with "A"`, `$.items[*].price > 10`, `$[0 to last].a == 1.5e3`, `$.a[last - 1, 0] == true`, `$.a.size() >= 2`, `$.**{2 to last}.x == 1`,
	`$.**{1}.x == 1`, `$.* == 1`, `($.a + 1) * 2 % 3 - -$.b / 4 > .5`, `$.a.type() == "object" /* so */`, `$.d.datetime() < "2026-01-01".datetime()`, `exists($.a ? (@.b starts with "x"))`,
	`!($.a == 1) && !exists($.b)`, `EXISTS($.a)`, `$.exists == 1 && $.is == 2 && $.last == 3 && $.true == 4`, `1 == 1`, `$.a."b\"c" == "\u00e4"`, `$.größe > 1`, `($.a).b == 1`, `+$.a == - 1`,
}

var wrong = map[string]string{
	``:                          "1: ends too early: want a path, as $.amount, or a value",
	`$.a >`:                     "6: ends too early: want a path, as $.amount, or a value",
	`$.a`:                       "1: is no condition, as it gives a value: compare it with something, as in $.amount >= 100, or ask exists($.amount)",
	`$ ? (@.a > 1)`:             "1: is no condition, as it gives a value: compare it with something, as in $.amount >= 100, or ask exists($.amount)",
	`$.a = 1`:                   "5: = is no operator: want ==",
	`$.a == 1 & $.b == 2`:       "10: & is not expected here: want an operator, or the end",
	`$.a == 1 and $.b == 2`:     "10: and is not expected here: want an operator, or the end",
	`$.a == 'x'`:                "8: 'x' is not expected here: want a path, as $.amount, or a value",
	`$.a == "x`:                 `8: the text in quotes does not end: want another "`,
	`$.größe == `:               "12: ends too early: want a path, as $.amount, or a value",
	`amount > 1`:                "1: amount is not expected here: want a path, as $.amount, or a value",
	`$amount > 1`:               "1: $amount is a variable, and a condition has none: a field of the payload is $.amount",
	`strict $.a == 1`:           "1: strict is not for conditions: leave it out",
	`@ > 1`:                     "1: @ is what a filter looks at, and there is none around it: the payload is $",
	`$.a[last] == last`:         "14: last is only in the subscripts of an array",
	`$.a && $.b`:                "1: is a value, and && stands between conditions",
	`$.a == 1 || $.b`:           "13: is a value, and || stands between conditions",
	`!$.a`:                      "2: $ is not expected here: want ( or exists after !",
	`$.a.length() > 1`:          "5: there is no method length()",
	`$.a == 1 == 2`:             "10: == is not expected here: want an operator, or the end",
	`($.a == 1) + 1 == 2`:       "1: is a condition, and + wants numbers",
	`$.a == ($.b == 1)`:         "8: is a condition, and a value is compared with another value",
	`($.a == 1`:                 "10: ends too early: want )",
	`$.a == 1abc`:               `8: "1abc" is no number`,
	`$.a == 007`:                `8: "007" is no number`,
	`$.a starts with $.b`:       `17: $ is not expected here: want text in "quotes"`,
	`$.a == 1 /* and`:           "10: the comment does not end",
	`$..a == 1`:                 "3: . is not expected here: want the name of a field",
	`exists($.a == 1)`:          "8: is a condition, and exists wants a path",
	`$ ? (@.a) == 1`:            "6: is a value, and a filter wants a condition",
	`$[$.a == 1] == 1`:          "7: == is not expected here: want ]",
	`$.a like_regex "a" flag 3`: `25: 3 is not expected here: want text in "quotes"`,
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, src := range good {
		if err := Check(src); err != nil {
			t.Errorf("%s: %v", src, err)
		}
	}
	for src, want := range wrong {
		err := Check(src)
		if err == nil || fmt.Sprintf("%d: %s", err.Column, err.Reason) != want {
			t.Errorf("%s:\n%v\nwant\ncolumn %s", src, err, want)
		}
	}
	if err := Check(strings.Repeat("(", 1000)); err == nil {
		t.Error("there is no bound")
	}
}

// What is accepted here Postgres accepts, and what is not it refuses too, or it is a path that is no condition: of many texts that are nearly right.
func TestAsPostgresSays(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	if _, err := pool.Exec(t.Context(), `create function is_path(s text) returns boolean language plpgsql as $f$ begin perform s::jsonpath; return true; exception when others then return false; end $f$`); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	parts := []string{"$", ".a", "(", ")", "&&", "||", "!", "==", " ", "1", `"x"`, "[", "]", "*", "?", "@", "exists(", "last", "+", "-", ".", "true", " is unknown", "{", "to", ".size()"}
	texts := append([]string{}, good...)
	for src := range wrong {
		texts = append(texts, src)
	}
	for range 3000 {
		src := good[random.IntN(len(good))]
		for range 1 + random.IntN(2) {
			from := random.IntN(len(src) + 1)
			to := min(len(src), from+random.IntN(4))
			put := ""
			if random.IntN(2) == 0 {
				put = parts[random.IntN(len(parts))]
			}
			src = strings.ToValidUTF8(src[:from]+put+src[to:], "")
		}
		texts = append(texts, src)
	}
	rows, err := pool.Query(t.Context(), `select s, is_path(s) from unnest($1::text[]) s`, texts)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	accepted := 0
	for rows.Next() {
		var src string
		var ok bool
		if err := rows.Scan(&src, &ok); err != nil {
			t.Fatal(err)
		}
		err := Check(src)
		switch {
		case err == nil && !ok && !strings.Contains(src, "like_regex"): // what is a pattern Postgres alone knows
			t.Errorf("%s is accepted, and Postgres refuses it", src)
		case err != nil && ok && !ours(err):
			t.Errorf("%s: %v, and Postgres accepts it", src, err)
		case err == nil:
			accepted++
		}
	}
	if err := rows.Err(); err != nil || accepted < 200 {
		t.Errorf("%d accepted, %v", accepted, err)
	}
}

// ours are refusals of what is a path to Postgres and no condition.
func ours(err *Error) bool {
	for _, why := range []string{"is no condition", "is not for conditions", "is a variable", "is nested deeper"} {
		if strings.Contains(err.Reason, why) {
			return true
		}
	}
	return false
}
