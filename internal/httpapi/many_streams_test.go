package httpapi_test

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
)

// TestManyStreams: one bridge has thousands of streams open, each on a trigger of its own, and each sees its end. POINTSMAN_TEST_LONG=1 opens
// 5,000, which takes some 10,000 file descriptors.
func TestManyStreams(t *testing.T) {
	t.Parallel()
	n := 500
	if os.Getenv("POINTSMAN_TEST_LONG") != "" {
		n = 5_000
	}
	stack := apptest.Start(t, routes, map[string][]string{"ORDERS": {"orders.>"}})
	b := &bundle{T: t, stack: stack, url: stack.HTTPURL}
	pool, err := pgxpool.New(t.Context(), stack.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	_, err = pool.Exec(t.Context(), `insert into pointsman.triggers (id, project, event_key, source_type, timeout_secs, expires_at)
		select gen_random_uuid(), 'default', 'many:' || g, 'api', 3600, now() + interval '1 h' from generate_series(1, $1) g`, n)
	if err != nil {
		t.Fatal(err)
	}
	before := memory()
	begun := time.Now()
	opened, ended := make(chan error, n), make(chan error, n)
	var opening errgroup.Group
	opening.SetLimit(32)
	for i := range n {
		opening.Go(func() error {
			lines, err := b.dial(fmt.Sprintf("/v1/events/many:%d/stream", i+1))
			if err == nil {
				err = status(lines, "waiting")
			}
			if opened <- err; err != nil {
				return err
			}
			go func() { ended <- cmp.Or(status(lines, "received"), toEnd(lines)) }()
			return nil
		})
	}
	all(t, "open", opened, n)
	_ = opening.Wait()
	open, used := time.Since(begun), memory()-before
	begun = time.Now()
	var sent api.SentToPrefix
	b.ask(http.StatusOK, "POST", "/v1/events/prefix/many:/send", `{"payload": {"status": "done"}}`, &sent)
	equal(t, "received", sent.Count, n)
	answered := time.Since(begun)
	all(t, "end", ended, n)
	t.Logf("%d streams: open after %s, %d KiB each with the client's side; sent in %s, the last end after %s", n, open.Round(time.Millisecond),
		int(used)/n>>10, answered.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond))
}

// memory in use, with stacks.
func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// dial asks for a stream on a connection of its own.
func (b *bundle) dial(path string) (*bufio.Reader, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		return nil, err
	}
	b.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, conn.RemoteAddr())
	return bufio.NewReaderSize(conn, 1024), err
}

// status reads up to the next status.
func status(lines *bufio.Reader, want string) error {
	for {
		line, err := lines.ReadString('\n')
		if data, is := strings.CutPrefix(line, "data: "); is {
			if !strings.Contains(data, `"status":`+strconv.Quote(want)) {
				return errors.New("it is " + data)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("before it is %s: %w", want, err)
		}
	}
}

// toEnd reads the rest, of which nothing is a status.
func toEnd(lines *bufio.Reader) error {
	for {
		line, err := lines.ReadString('\n')
		switch {
		case strings.HasPrefix(line, "data: "):
			return errors.New("after the end: " + line)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func all(t testing.TB, what string, came <-chan error, n int) {
	t.Helper()
	for i := range n {
		select {
		case err := <-came:
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		case <-time.After(4 * time.Minute):
			t.Fatalf("%s: %d of %d", what, i, n)
		}
	}
}
