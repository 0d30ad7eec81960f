package images

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/moby/moby/client"

	"github.com/pointsman/pointsman/integration/programs"
	"github.com/pointsman/pointsman/internal/pgserver"
	"github.com/pointsman/pointsman/internal/pgtest"
)

// user and group of Postgres in an image that is built here, as in the official one.
const postgresUser = 999

const entrypoint = "./integration/images/docker-entrypoint.sh"

// Postgres is an image of a Postgres server that takes what the official image takes: its variables, /docker-entrypoint-initdb.d, a
// command for the server. What is built here is this machine's server.
func Postgres(ctx context.Context, docker client.APIClient) (string, error) {
	i := image{variable: "POINTSMAN_TEST_POSTGRES_IMAGE", public: "postgres:17-alpine", local: "postgres"}
	return i.get(ctx, docker, func() (string, func(io.Writer) error, error) {
		bin, err := pgserver.Programs(ctx)
		if err != nil {
			return "", nil, err
		}
		files, err := serverFiles(ctx, bin)
		if err != nil {
			return "", nil, err
		}
		const entry = "/usr/local/bin/docker-entrypoint.sh"
		built, err := programs.Build(ctx, programs.Options{Static: true}, entrypoint)
		if err != nil {
			return "", nil, err
		}
		files[entry] = filepath.Join(built, programs.Name(entrypoint))
		c := i.config(config{
			Env:        []string{"PATH=" + bin + ":/usr/local/bin:/usr/bin", "LANG=C.UTF-8", "TZ=UTC", "PGDATA=/var/lib/postgresql/data"},
			Entrypoint: []string{"docker-entrypoint.sh"}, Cmd: []string{"postgres"}, StopSignal: "SIGINT",
		})
		hash, err := files.hash(entry)
		return hash, func(w io.Writer) error {
			l := newLayer()
			l.dir("/tmp", 0o1777, 0)
			l.dir("/var/lib/postgresql", 0o755, postgresUser)
			l.dir("/var/lib/postgresql/data", 0o700, postgresUser)
			l.dir("/run/postgresql", 0o3777, postgresUser)
			l.dir("/docker-entrypoint-initdb.d", 0o755, 0)
			l.link("/var/run", "/run")
			accounts(l)
			if err := files.write(l); err != nil {
				return err
			}
			return l.archive(w, i.name(hash), c)
		}, err
	})
}

// serverFiles are those of a Postgres server, and a shell with what the scripts of the official image's users use most.
func serverFiles(ctx context.Context, bin string) (rootfs, error) {
	files := rootfs{}
	for _, name := range []string{"postgres", "initdb", "pg_ctl", "psql", "pg_basebackup", "pg_isready", "pg_rewind", "pg_controldata", "pg_config"} {
		if path := filepath.Join(bin, name); isELF(path) {
			files.program(path)
		}
	}
	for _, name := range []string{"bash", "cat", "grep", "chmod", "mkdir", "mv", "rm", "sleep", "id"} {
		path, err := exec.LookPath(name)
		if err != nil {
			return nil, err
		}
		files["/usr/bin/"+name] = path
	}
	files["/usr/bin/sh"] = files["/usr/bin/bash"]
	for _, dir := range []string{"--pkglibdir", "--sharedir"} {
		out, err := exec.CommandContext(ctx, filepath.Join(bin, "pg_config"), dir).Output()
		if err != nil {
			return nil, fmt.Errorf("pg_config %s: %w", dir, err)
		}
		files.tree(strings.TrimSpace(string(out)))
	}
	files.tree("/usr/share/zoneinfo")
	files.tree("/usr/lib/locale/C.utf8")
	for path := range files {
		if strings.Contains(path, "llvmjit") || strings.Contains(path, "/bitcode/") { // LLVM is 100 MB, and the server runs without it
			delete(files, path)
		}
	}
	return files, files.libraries(ctx)
}

func accounts(l *layer) {
	l.file("/etc/passwd", 0o644, fmt.Appendf(nil, "root:x:0:0:root:/root:/bin/sh\npostgres:x:%[1]d:%[1]d::/var/lib/postgresql:/bin/sh\n", postgresUser))
	l.file("/etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\npostgres:x:%d:\n", postgresUser))
	l.file("/etc/nsswitch.conf", 0o644, []byte("passwd: files\ngroup: files\nhosts: files dns\n"))
}

// PgBouncer is an image of this machine's pgbouncer, which is its entry point.
func PgBouncer(ctx context.Context, docker client.APIClient) (string, error) {
	i := image{variable: "POINTSMAN_TEST_PGBOUNCER_IMAGE", local: "pgbouncer"}
	return i.get(ctx, docker, func() (string, func(io.Writer) error, error) {
		program, err := pgtest.FindBouncer()
		if err != nil {
			return "", nil, err
		}
		files := rootfs{"/usr/bin/pgbouncer": program}
		if err := files.libraries(ctx); err != nil {
			return "", nil, err
		}
		hash, err := files.hash()
		return hash, func(w io.Writer) error {
			l := newLayer()
			l.dir("/tmp", 0o1777, 0)
			accounts(l)
			if err := files.write(l); err != nil {
				return err
			}
			return l.archive(w, i.name(hash), i.config(config{
				User: "postgres", Env: []string{"PATH=/usr/bin", "TZ=UTC"}, Entrypoint: []string{"pgbouncer"},
			}))
		}, err
	})
}
