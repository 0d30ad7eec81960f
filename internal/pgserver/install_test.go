package pgserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeApt puts an apt-get of our own, and nothing else, where programs are looked for. It counts its calls in the file "calls".
func fakeApt(t *testing.T, install string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	script := "#!/bin/sh\necho \"$1\" >>" + dir + "/calls\n[ \"$1\" = update ] && exit 0\n" + install
	if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	known := installations
	t.Cleanup(func() { installations = known })
	installations = nil
	t.Setenv("PATH", dir)
	return dir
}

func calls(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(b)), " ")
}

func TestInstallOnce(t *testing.T) {
	dir := fakeApt(t, `d=${0%/*}; for p in postgres initdb; do echo >$d/$p; /bin/chmod 755 $d/$p; done`)
	lock := filepath.Join(t.TempDir(), "lock")
	for range 2 {
		if err := installOnce(t.Context(), lock); err != nil {
			t.Fatal(err)
		}
	}
	if got := calls(t, dir); got != "update install" {
		t.Errorf("apt-get ran %q", got)
	}
}

func TestInstallFailureStandsForAll(t *testing.T) {
	dir := fakeApt(t, "echo E: no network >&2; exit 100\n")
	lock := filepath.Join(t.TempDir(), "lock")
	if err := installOnce(t.Context(), lock); err == nil || !strings.Contains(err.Error(), "E: no network") {
		t.Errorf("got %v", err)
	}
	if err := installOnce(t.Context(), lock); err == nil || !strings.Contains(err.Error(), "a moment ago") {
		t.Errorf("got %v", err)
	}
	if got := calls(t, dir); got != "update install" {
		t.Errorf("apt-get ran %q", got)
	}
}

func TestInstallForbidden(t *testing.T) {
	t.Setenv("POINTSMAN_INSTALL_POSTGRES", "never")
	if err := Install(t.Context()); err == nil || !strings.Contains(err.Error(), "never") {
		t.Errorf("got %v", err)
	}
}
