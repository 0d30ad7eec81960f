package engine

import (
	"fmt"
	"testing"
)

// Whoever asks names the project: of as many names as there may be the metrics have a bounded number.
func TestProjectLabels(t *testing.T) {
	t.Parallel()
	var p projectLabels
	for i := range maxProjectLabels {
		if name := fmt.Sprint("p", i); p.label(name) != name {
			t.Fatalf("the label of %s is %s", name, p.label(name))
		}
	}
	for name, want := range map[string]string{"one more": otherProjects, "p0": "p0", "p999": "p999"} {
		if got := p.label(name); got != want {
			t.Errorf("the label of %s is %s, want %s", name, got, want)
		}
	}
}
