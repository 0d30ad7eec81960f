// Command docker-entrypoint.sh does what the script of that name does in the official Postgres image, as far as tests ask for it: it makes the
// data where there are none, from POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB, POSTGRES_INITDB_ARGS, POSTGRES_HOST_AUTH_METHOD and the files
// of /docker-entrypoint-initdb.d (*.sh, *.sql), and becomes the server. Variables that end in _FILE name a file with the value.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "docker-entrypoint.sh:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		args = append([]string{"postgres"}, args...)
	}
	if args[0] == "postgres" {
		data := variable("PGDATA", "/var/lib/postgresql/data")
		if err := becomePostgres(data); err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); errors.Is(err, os.ErrNotExist) {
			if err := initialise(data); err != nil {
				return err
			}
		}
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return syscall.Exec(program, args, os.Environ())
}

func variable(name, otherwise string) string {
	if file := os.Getenv(name + "_FILE"); file != "" {
		if text, err := os.ReadFile(file); err == nil {
			return strings.TrimRight(string(text), "\n")
		}
	}
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// becomePostgres gives the data to the user postgres and goes on as that user, where this is root.
func becomePostgres(data string) error {
	if err := os.MkdirAll(data, 0o700); err != nil || os.Getuid() != 0 {
		return err
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return err
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	return errors.Join(err1, err2, give(data, uid, gid), os.Chmod(data, 0o700),
		syscall.Setgroups([]int{gid}), syscall.Setgid(gid), syscall.Setuid(uid), os.Setenv("HOME", u.HomeDir))
}

func give(dir string, uid, gid int) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
}

func initialise(data string) error {
	superuser := variable("POSTGRES_USER", "postgres")
	database := variable("POSTGRES_DB", superuser)
	password := variable("POSTGRES_PASSWORD", "")
	method := variable("POSTGRES_HOST_AUTH_METHOD", "scram-sha-256")
	if password == "" && method != "trust" {
		return errors.New("there are no data and no password for them: set POSTGRES_PASSWORD")
	}
	args := append([]string{"-D", data, "--username=" + superuser, "-E", "UTF8", "--locale=C.UTF-8"}, strings.Fields(os.Getenv("POSTGRES_INITDB_ARGS"))...)
	if password != "" {
		file := filepath.Join(os.TempDir(), "password")
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			return err
		}
		defer func() { _ = os.Remove(file) }()
		args = append(args, "--pwfile="+file)
	}
	if err := command("initdb", args...); err != nil {
		return err
	}
	err := errors.Join(
		add(filepath.Join(data, "pg_hba.conf"), "\nhost all all all "+method+"\n"),
		add(filepath.Join(data, "postgresql.conf"), "\nlisten_addresses = '*'\n"), // the official image has it in the sample
		os.Setenv("PGPASSWORD", password),
		command("pg_ctl", "-D", data, "-o", "-c listen_addresses=''", "-w", "start"),
	)
	if err != nil {
		return err
	}
	if err := fill(superuser, database); err != nil {
		return err
	}
	err = errors.Join(command("pg_ctl", "-D", data, "-m", "fast", "-w", "stop"), os.Unsetenv("PGPASSWORD"))
	fmt.Println("\nPostgreSQL init process complete; ready for start up.")
	return err
}

// fill makes the database, and runs what users want to be run.
func fill(superuser, database string) error {
	psql := []string{"-v", "ON_ERROR_STOP=1", "--no-psqlrc", "-U", superuser, "-d"}
	if database != "postgres" {
		if err := command("psql", append(psql, "postgres", "-c", `create database "`+strings.ReplaceAll(database, `"`, `""`)+`"`)...); err != nil {
			return err
		}
	}
	files, err := filepath.Glob("/docker-entrypoint-initdb.d/*")
	if err != nil {
		return err
	}
	slices.Sort(files)
	for _, file := range files {
		switch filepath.Ext(file) {
		case ".sh":
			err = command("sh", file)
		case ".sql":
			err = command("psql", append(slices.Clone(psql), database, "-f", file)...)
		default:
			err = fmt.Errorf("%s: want *.sh or *.sql", file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func add(file, text string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func command(name string, args ...string) error {
	c := exec.Command(name, args...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
