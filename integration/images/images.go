package images

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"github.com/pointsman/pointsman/integration/programs"
)

const (
	pullTimeout = 2 * time.Minute
	keepFor     = 24 * time.Hour
	label       = "pointsman.test.image"
	prefix      = "pointsman-test/"
)

// image is one that can be had in several ways.
type image struct {
	variable string // names another one to use
	public   string // where it can be pulled; "" where nobody publishes it
	local    string // its name when it is built here, without the hash
}

// get returns the name of an image that is there: the one of the variable, else one that has been built here, else the public one, else a new
// build. content says what a build is made of.
func (i image) get(ctx context.Context, docker client.APIClient, content func() (hash string, build func(io.Writer) error, err error)) (string, error) {
	if wanted := os.Getenv(i.variable); i.variable != "" && wanted != "" {
		if exists(ctx, docker, wanted) {
			return wanted, nil
		}
		if err := pull(ctx, docker, wanted); err != nil {
			return "", fmt.Errorf("%s: %w", i.variable, err)
		}
		return wanted, nil
	}
	if i.public != "" && exists(ctx, docker, i.public) {
		return i.public, nil
	}
	hash, build, err := content()
	if err == nil && exists(ctx, docker, i.name(hash)) {
		return i.name(hash), nil
	}
	var pulled error
	if i.public != "" {
		if pulled = pull(ctx, docker, i.public); pulled == nil {
			return i.public, nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("image %s%s can neither be pulled nor built: %w", prefix, i.local, cmp.Or(pulled, err))
	}
	return i.name(hash), i.load(ctx, docker, hash, build)
}

func (i image) name(hash string) string { return prefix + i.local + ":" + hash }

func exists(ctx context.Context, docker client.APIClient, name string) bool {
	_, err := docker.ImageInspect(ctx, name)
	return err == nil
}

func pull(ctx context.Context, docker client.APIClient, name string) error {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	response, err := docker.ImagePull(ctx, name, client.ImagePullOptions{})
	if err != nil {
		return fmt.Errorf("pull %s: %w", name, err)
	}
	if err := response.Wait(ctx); err != nil {
		return fmt.Errorf("pull %s: %w", name, err)
	}
	return nil
}

// load has an archive made and loads it.
func (i image) load(ctx context.Context, docker client.APIClient, hash string, build func(io.Writer) error) error {
	var archive bytes.Buffer
	if err := build(&archive); err != nil {
		return fmt.Errorf("build %s: %w", i.name(hash), err)
	}
	response, err := docker.ImageLoad(ctx, &archive)
	if err != nil {
		return fmt.Errorf("load %s: %w", i.name(hash), err)
	}
	answer, err := io.ReadAll(response)
	_ = response.Close()
	if err != nil {
		return fmt.Errorf("load %s: %w", i.name(hash), err)
	}
	if !exists(ctx, docker, i.name(hash)) {
		return fmt.Errorf("load %s: %s", i.name(hash), answer)
	}
	i.removeOld(ctx, docker)
	return nil
}

// removeOld makes room. What a container uses is not removed, and what cannot be is left to the next run.
func (i image) removeOld(ctx context.Context, docker client.APIClient) {
	found, err := docker.ImageList(ctx, client.ImageListOptions{Filters: client.Filters{}.Add("label", label+"="+i.local)})
	if err != nil {
		return
	}
	for _, old := range found.Items {
		if time.Since(time.Unix(old.Created, 0)) > keepFor {
			_, _ = docker.ImageRemove(ctx, old.ID, client.ImageRemoveOptions{PruneChildren: true})
		}
	}
}

// Program is an image of one static program, which is its entry point.
func Program(ctx context.Context, docker client.APIClient, binary string) (string, error) {
	i := image{local: filepath.Base(binary)}
	return i.get(ctx, docker, func() (string, func(io.Writer) error, error) { return i.program(binary) })
}

// NATS is an image of nats-server, in the version of go.mod.
func NATS(ctx context.Context, docker client.APIClient) (string, error) {
	version, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", programs.NATSServer).Output()
	if err != nil {
		return "", fmt.Errorf("version of nats-server: %w", err)
	}
	i := image{variable: "POINTSMAN_TEST_NATS_IMAGE", public: "nats:" + strings.TrimPrefix(strings.TrimSpace(string(version)), "v"), local: "nats-server"}
	return i.get(ctx, docker, func() (string, func(io.Writer) error, error) {
		dir, err := programs.Build(ctx, programs.Options{Static: true}, programs.NATSServer)
		if err != nil {
			return "", nil, err
		}
		return i.program(filepath.Join(dir, programs.Name(programs.NATSServer)))
	})
}

func (i image) program(binary string) (hash string, build func(io.Writer) error, err error) {
	text, err := os.ReadFile(binary)
	if err != nil {
		return "", nil, err
	}
	sum := sha256.Sum256(text)
	hash = hex.EncodeToString(sum[:8])
	name := filepath.Base(binary)
	return hash, func(w io.Writer) error {
		l := newLayer()
		l.dir("/tmp", 0o1777, 0)
		l.file("/etc/passwd", 0o644, []byte("root:x:0:0:root:/:/sbin/nologin\n"))
		l.file("/"+name, 0o755, text)
		return l.archive(w, i.name(hash), i.config(config{Entrypoint: []string{"/" + name}}))
	}, nil
}

// config adds what all images have.
func (i image) config(c config) config {
	c.Labels = map[string]string{label: i.local}
	return c
}
