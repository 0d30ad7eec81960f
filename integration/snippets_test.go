package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Go code that the documentation shows compiles, and runs: it is the text of a test, or a program that [TestREADME] builds.
func TestSnippets(t *testing.T) {
	t.Parallel()
	tests := testSources(t)
	docs, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, doc := range append(docs, "../README.md") {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range fence.FindAllStringSubmatch(string(text), -1) {
			if block[1] != "go" || strings.HasPrefix(block[2], "package main") {
				continue
			}
			shown++
			if !containsIndented(tests, block[2]) {
				t.Errorf("%s shows code that is in no _test.go, word for word:\n%s", filepath.Base(doc), block[2])
			}
		}
	}
	if shown == 0 {
		t.Error("no code found")
	}
}

// testSources are all files of tests, one after another.
func testSources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// containsIndented looks for code as it is, or in a function.
func containsIndented(sources, code string) bool {
	for _, indent := range []string{"", "\t"} {
		lines := strings.SplitAfter(code, "\n")
		for i, line := range lines {
			if line != "\n" && line != "" {
				lines[i] = indent + line
			}
		}
		if strings.Contains(sources, strings.Join(lines, "")) {
			return true
		}
	}
	return false
}
