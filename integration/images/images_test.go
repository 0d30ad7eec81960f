package images

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestHash: what is built anew to the same content is the same image, and another content is another.
func TestHash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	built, found := filepath.Join(dir, "built"), filepath.Join(dir, "found")
	write := func(file, text string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	hash := func() string {
		t.Helper()
		sum, err := rootfs{"/built": built, "/found": found}.hash("/built")
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	then := time.Unix(1_000_000_000, 0)
	write(built, "one", then)
	write(found, "library", then)
	first := hash()
	write(built, "one", then.Add(time.Hour))
	if hash() != first {
		t.Error("the time of a build makes another image")
	}
	write(built, "two", then)
	if hash() == first {
		t.Error("another program makes the same image")
	}
	write(built, "one", then)
	write(found, "library", then.Add(time.Hour))
	if hash() == first {
		t.Error("a library that was installed anew makes the same image")
	}
}
