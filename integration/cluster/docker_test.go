package cluster

import (
	"errors"
	"os/exec"
	"strconv"
	"testing"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go/network"
)

func TestWithoutDocker(t *testing.T) {
	why := errors.New("connection refused")
	t.Setenv("CI", "")
	if err := without(why); !errors.Is(err, errNoDocker) || !errors.Is(err, why) {
		t.Errorf("elsewhere: %v, want a skip that says why", err)
	}
	t.Setenv("CI", "true")
	if err := without(why); errors.Is(err, errNoDocker) || !errors.Is(err, why) {
		t.Errorf("in CI: %v, want a failure that says why", err)
	}
	t.Setenv(containersVariable, "never")
	if _, err := connectDocker(t.Context()); !errors.Is(err, errNoDocker) {
		t.Errorf("in CI that is told so: %v, want a skip", err)
	}
}

// TestOrphansAreRemoved: what a test process left behind that was killed, and nothing of one that runs.
func TestOrphansAreRemoved(t *testing.T) {
	docker, err := connectDocker(t.Context())
	if errors.Is(err, errNoDocker) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = docker.Close() }()
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	left := labels()
	left[labelPID] = strconv.Itoa(ended.Process.Pid)
	orphan, err := network.New(t.Context(), network.WithLabels(left))
	if err != nil {
		t.Fatal(err)
	}
	mine, err := network.New(t.Context(), network.WithLabels(labels()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mine.Remove(t.Context()) }()
	if err := removeOrphans(t.Context(), docker); err != nil {
		t.Fatal(err)
	}
	if _, err := docker.NetworkInspect(t.Context(), orphan.ID, client.NetworkInspectOptions{}); err == nil {
		t.Error("the orphan is still there")
	}
	if _, err := docker.NetworkInspect(t.Context(), mine.ID, client.NetworkInspectOptions{}); err != nil {
		t.Errorf("that of a process which runs: %v", err)
	}
}
