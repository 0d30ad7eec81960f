package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
)

// errNoDocker skips a test.
var errNoDocker = errors.New("no containers")

const (
	// containersVariable says never where containers are not to be used.
	containersVariable = "POINTSMAN_TEST_CONTAINERS"
	pingTimeout        = 10 * time.Second
)

// connectDocker returns a client of a Docker that answers. Without one the error is errNoDocker, unless this is CI, which is to say so itself
// when it has none.
func connectDocker(ctx context.Context) (*testcontainers.DockerClient, error) {
	if os.Getenv(containersVariable) == "never" {
		return nil, fmt.Errorf("%w: %s is never", errNoDocker, containersVariable)
	}
	configure()
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err == nil {
		if _, err = docker.Ping(ctx, client.PingOptions{}); err == nil {
			return docker, nil
		}
		_ = docker.Close()
	}
	return nil, without(err)
}

// without Docker a test is skipped, but for CI.
func without(why error) error {
	if os.Getenv("CI") == "true" {
		return fmt.Errorf("no Docker answers, and CI is true: %w; %s=never goes without containers", why, containersVariable)
	}
	return fmt.Errorf("%w: no Docker answers: %w", errNoDocker, why)
}

// configure Testcontainers before it reads its configuration, which it does once. What is set already stays.
var configure = sync.OnceFunc(func() {
	set := func(name, value string) {
		if _, ok := os.LookupEnv(name); !ok {
			_ = os.Setenv(name, value)
		}
	}
	set("TESTCONTAINERS_RYUK_DISABLED", "true") // it would have to be pulled; see removeOrphans
	// In a container Testcontainers takes the default gateway for the machine with the ports. Where Docker runs beside us they are here.
	if _, err := net.InterfaceByName("docker0"); err == nil {
		set("TESTCONTAINERS_HOST_OVERRIDE", loopback)
	}
	tclog.SetDefault(log.New(io.Discard, "", 0))
})

// Labels of all that is made here.
const (
	labelHost = "pointsman.test.host"
	labelPID  = "pointsman.test.pid"
)

func labels() map[string]string {
	host, _ := os.Hostname()
	return map[string]string{labelHost: host, labelPID: strconv.Itoa(os.Getpid())}
}

// removeOrphans removes what test processes of this machine that run no more have left.
func removeOrphans(ctx context.Context, docker *testcontainers.DockerClient) error {
	ours := client.Filters{}.Add("label", labelHost+"="+labels()[labelHost])
	found, err := docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: ours})
	if err != nil {
		return fmt.Errorf("look for orphans: %w", err)
	}
	for _, c := range found.Items {
		if !orphan(c.Labels) {
			continue
		}
		if _, err := docker.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err != nil && !removed(err) {
			return fmt.Errorf("remove orphan %s: %w", c.ID, err)
		}
	}
	networks, err := docker.NetworkList(ctx, client.NetworkListOptions{Filters: ours})
	if err != nil {
		return fmt.Errorf("look for orphans: %w", err)
	}
	for _, n := range networks.Items {
		if !orphan(n.Labels) {
			continue
		}
		if _, err := docker.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{}); err != nil && !removed(err) {
			return fmt.Errorf("remove orphan %s: %w", n.Name, err)
		}
	}
	return nil
}

func orphan(labels map[string]string) bool {
	pid, err := strconv.Atoi(labels[labelPID])
	return err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// removed says whether another process has removed it, or is about to.
func removed(err error) bool {
	return strings.Contains(err.Error(), "No such") || strings.Contains(err.Error(), "not found") || strings.Contains(err.Error(), "already in progress")
}
