package docs

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fenced  = regexp.MustCompile("(?ms)^(```|~~~).*?^(```|~~~)$")
	inline  = regexp.MustCompile("`[^`\n]*`")
	linked  = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.*?) *#*$`)
	unused  = regexp.MustCompile(`[^\p{L}\p{N}\p{M}_ -]`)
)

// Every link of a Markdown file to another file, or to a heading, leads to one. Links to elsewhere are not asked for.
func TestLinks(t *testing.T) {
	t.Parallel()
	found := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		prose := inline.ReplaceAllString(fenced.ReplaceAllString(string(text), ""), "")
		for _, link := range linked.FindAllStringSubmatch(prose, -1) {
			u, err := url.Parse(link[1])
			if err != nil {
				t.Errorf("%s: %s: %v", path, link[1], err)
				continue
			}
			if u.Scheme != "" || strings.HasPrefix(link[1], "<") {
				continue
			}
			found++
			target := path
			if u.Path != "" {
				target = filepath.Join(filepath.Dir(path), filepath.FromSlash(u.Path))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s leads nowhere", path, link[1])
				continue
			}
			if u.Fragment != "" && !anchors(t, target)[u.Fragment] {
				t.Errorf("%s: %s has no heading of that name", path, link[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 40 {
		t.Errorf("%d links were found", found)
	}
}

// Every page is in an index: those of this folder in README.md, those of howto/ in its own.
func TestIndex(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{".", "howto"} {
		index, err := os.ReadFile(filepath.Join(folder, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		pages, err := filepath.Glob(filepath.Join(folder, "*.md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			if name := filepath.Base(page); name != "README.md" && !strings.Contains(string(index), "]("+name+")") {
				t.Errorf("%s is not in its index", page)
			}
		}
	}
}

// anchors of a file's headings, as they are made of their texts: in lower case, without punctuation, with - for a space.
func anchors(t *testing.T, path string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
		name := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(h[1], "$1")
		all[strings.ReplaceAll(unused.ReplaceAllString(strings.ToLower(name), ""), " ", "-")] = true
	}
	return all
}
