package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A row of semantics.md ends with the tests of its sentence, each in backquotes.
var (
	tests  = regexp.MustCompile("^(`[^`]+` ?)+$")
	quoted = regexp.MustCompile("`([^`]+)`")
	named  = regexp.MustCompile(`^([a-z/]+)/([a-z_]+_test\.go):(Test\w+)(?:/(.+))?$`)
)

// Every row of semantics.md names tests, and all that it names is there.
func TestSemanticsNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("semantics.md")
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]*source{}
	rows := 0
	for n, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 2 || strings.HasPrefix(line, "| it says") || strings.HasPrefix(line, "| ---") {
			continue
		}
		rows++
		if len(cells) != 5 || strings.TrimSpace(cells[1]) == "" || !tests.MatchString(strings.TrimSpace(cells[3])) {
			t.Errorf("line %d: want a sentence, what we mean, and tests: %s", n+1, line)
			continue
		}
		for _, ref := range quoted.FindAllStringSubmatch(cells[3], -1) {
			if why := missing(t, packages, ref[1]); why != "" {
				t.Errorf("line %d: %s: %s", n+1, ref[1], why)
			}
		}
	}
	if rows < 80 {
		t.Errorf("%d rows were found", rows)
	}
}

// missing says what is not there of a test, "" where all is.
func missing(t *testing.T, packages map[string]*source, ref string) string {
	t.Helper()
	m := named.FindStringSubmatch(ref)
	if m == nil {
		return "is no directory/file_test.go:TestName or :TestName/case"
	}
	dir, file, test, name := m[1], m[2], m[3], m[4]
	if packages[dir] == nil {
		packages[dir] = parse(t, filepath.Join("..", filepath.FromSlash(dir)))
	}
	src := packages[dir]
	switch {
	case !src.functions[file+":"+test]:
		return "there is no such function"
	case name != "" && !src.literals[name]:
		return "there is no such case"
	}
	return ""
}

// source is what a directory's Go files hold: their functions, by file, and their string literals. The cases of a test may be in another
// file, or in a package below.
type source struct {
	functions map[string]bool
	literals  map[string]bool
}

func parse(t *testing.T, dir string) *source {
	t.Helper()
	src := &source{functions: map[string]bool{}, literals: map[string]bool{}}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if filepath.Dir(path) == dir && n.Recv == nil {
					src.functions[filepath.Base(path)+":"+n.Name.Name] = true
				}
			case *ast.BasicLit:
				if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					src.literals[s] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return src
}
