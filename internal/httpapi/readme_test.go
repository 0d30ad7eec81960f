package httpapi_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
)

var (
	curlBlock = regexp.MustCompile("(?s)```sh\n(curl .*?)```")
	curlWord  = regexp.MustCompile(`'([^']*)'|(\S+)`)
)

// testReadme asks what the curl lines of README.md ask.
func testReadme(b *bundle) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		b.Fatal(err)
	}
	block := curlBlock.FindStringSubmatch(string(text))
	if block == nil {
		b.Fatal("README.md has no curl")
	}
	lines := strings.Split(strings.TrimSpace(block[1]), "\n")
	for i, line := range lines {
		method, path, body := "GET", "", ""
		var headers []string
		words := curlWord.FindAllStringSubmatch(line, -1)[1:]
		for len(words) > 0 {
			word := words[0][1] + words[0][2]
			words = words[1:]
			value := ""
			if word == "-X" || word == "-H" || word == "-d" {
				value, words = words[0][1]+words[0][2], words[1:]
			}
			switch word {
			case "-X":
				method = value
			case "-d":
				body = value
				headers = append(headers, "Content-Type", "application/x-www-form-urlencoded") // as curl has it
			case "-H":
				name, text, _ := strings.Cut(value, ": ")
				headers = append(headers, name, text)
			case "-N":
			default:
				path = strings.TrimPrefix(word, "http://127.0.0.1:8080")
			}
		}
		a := b.call(method, path, body, headers...)
		if a.StatusCode >= 300 {
			b.Errorf("%s: %s: %s", line, a.Status, a.body)
		}
		if i == len(lines)-2 {
			var in api.Instance
			if err := json.Unmarshal(a.body, &in); err != nil || in.Status != engine.StatusDone {
				b.Errorf("%s: %v: %s", line, err, a.body)
			}
		}
	}
	equal(b, "lines", len(lines), 5)
}

// The table of scopes in docs/requests.md is that of the API: each path is in it, in a row with its scope.
func TestScopesAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/requests.md")
	if err != nil {
		t.Fatal(err)
	}
	b := &bundle{T: t, url: newStub(t).url}
	var doc document
	b.ask(200, "GET", "/openapi.json", "", &doc)
	for path, operations := range doc.Paths {
		for method, o := range operations {
			scope := o.Description[strings.LastIndex(o.Description, "scope ")+6:]
			if strings.Contains(o.Description, "admin token") {
				scope = "admin token"
			}
			scope = strings.TrimSuffix(scope, ".")
			if !documented(string(text), strings.ToUpper(method), path, scope) {
				t.Errorf("%s %s, which takes the scope %s, is in no row with it", method, path, scope)
			}
		}
	}
}

// documented looks for a row with the scope that has the last part of the path, and the method.
func documented(text, method, path, scope string) bool {
	last := path[strings.LastIndex(path, "/"):]
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasSuffix(line, "| "+scope+" |") && strings.Contains(line, strings.TrimSuffix(last, "}")) && (strings.Contains(line, method+" /v1") || strings.Contains(line, "…"+last)) {
			return true
		}
	}
	return false
}
