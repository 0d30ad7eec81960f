package pgtest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pointsman/pointsman/internal/pgserver"
)

// startTimeout leaves time to install Postgres on a machine that has none.
const startTimeout = 6 * time.Minute

// shared is the server of this process, nil until a test asks for one.
var shared struct {
	once   sync.Once
	server *pgserver.Server
	url    string
	err    error
}

// Crowd has so many tests run at once on each processor, unless the command line says how many: for packages whose tests mostly wait. It comes before [Main].
func Crowd(each int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(each*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
}

// Main runs the tests of a package, stops the server, and fails the run when a goroutine is left. It does not return.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main for a TestMain that has more to do: it returns the exit status.
func Run(m *testing.M) int {
	code := RunUnchecked(m)
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest: goroutines are left:", err)
		return 1
	}
	return 0
}

// RunUnchecked is Run without the look for goroutines.
func RunUnchecked(m *testing.M) int {
	code := m.Run()
	stop := func() error { return dropTemplate(context.Background(), shared.url) }
	if shared.server != nil {
		stop = shared.server.Stop
	}
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		return max(code, 1)
	}
	return code
}

func serverURL(t testing.TB) string {
	t.Helper()
	shared.once.Do(startShared)
	if shared.err == nil {
		return shared.url
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("pgtest: %v", shared.err)
	}
	t.Skipf("pgtest: %v", shared.err)
	return ""
}

func startShared() {
	if shared.url = os.Getenv("POINTSMAN_TEST_DATABASE_URL"); shared.url != "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	shared.server, shared.err = pgserver.Start(ctx, pgserver.Config{
		Install: true,
		Temp:    memory(),
		Settings: map[string]string{
			"max_connections":  "200",
			"shared_buffers":   "64MB",
			"deadlock_timeout": "100ms",
			"fsync":            "off", // the data need not survive the machine; it does survive a killed server
		},
	})
	if shared.err == nil {
		shared.url = shared.server.URL()
	}
}
