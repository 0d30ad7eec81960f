package devenv

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/pointsman/pointsman/internal/natsserver"
	"github.com/pointsman/pointsman/internal/pgserver"
)

const (
	// natsPort is where the NATS server listens when the port is free, so that a line that was pasted once works again.
	natsPort = 4222
	natsName = "pointsman-dev"
	loopback = "127.0.0.1"
)

func (e *environment) startPostgres(ctx context.Context) (err error) {
	if e.DatabaseURL != "" {
		return nil
	}
	e.say("starting Postgres ...")
	dir := ""
	if e.DataDir != "" {
		if dir, err = filepath.Abs(filepath.Join(e.DataDir, "postgres")); err != nil {
			return err
		}
	}
	e.postgres, err = pgserver.Start(ctx, pgserver.Config{Dir: dir, Install: true, Settings: map[string]string{"shared_buffers": "256MB", "max_wal_size": "4GB"}})
	if err != nil {
		return err
	}
	e.DatabaseURL = e.postgres.URL()
	return nil
}

func (e *environment) startNATS(ctx context.Context) (err error) {
	if e.NATSURL != "" {
		return nil
	}
	cfg := natsserver.Config{Name: natsName, Port: natsPort, Logger: e.Log}
	if e.DataDir != "" {
		cfg.Dir = filepath.Join(e.DataDir, "nats")
	}
	if e.Chaos {
		return e.startNATSPart(ctx, cfg.Dir)
	}
	if e.nats, err = natsserver.Start(cfg); err != nil { // most likely the port is taken
		cfg.Port = -1
		if e.nats, err = natsserver.Start(cfg); err != nil {
			return err
		}
	}
	e.NATSURL = e.nats.URL()
	return nil
}

// startNATSPart runs the NATS server in a process of its own, so that it can be killed. Its port stays the same over restarts; it is not
// the usual one, which another dev may take while this one restarts.
func (e *environment) startNATSPart(ctx context.Context, dir string) (err error) {
	if dir == "" {
		if e.natsDir, err = os.MkdirTemp("", "pointsman-nats-*"); err != nil {
			return err
		}
		dir = filepath.Join(e.natsDir, "data")
	}
	addr := freeAddr(net.JoinHostPort(loopback, "0"))
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("find a free port: %w", err)
	}
	e.NATSURL = "nats://" + addr
	e.natsPart = e.child(partNATS, nil, "--dir", dir, "--port", port)
	if err := e.natsPart.start(); err != nil {
		return err
	}
	return until(ctx, connects(e.NATSURL))
}

// freeAddr returns the address, or where something else listens there one with a free port of the same host; "": neither can be had.
func freeAddr(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	for _, addr := range []string{addr, net.JoinHostPort(host, "0")} {
		if l, err := net.Listen("tcp", addr); err == nil {
			defer func() { _ = l.Close() }()
			return l.Addr().String()
		}
	}
	return ""
}
