// Package natsio connects to NATS the way every pointsman program does: for good, whatever the server does meanwhile.
package natsio

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	reconnectWait      = 500 * time.Millisecond
	reconnectJitter    = 500 * time.Millisecond // so that a thousand workers do not come back at once
	reconnectJitterTLS = 2 * time.Second        // handshakes cost the server more
	drainTimeout       = 30 * time.Second
)

// Config of a connection. Files are read when the connection is made, and credentials again with every reconnect.
type Config struct {
	URL string // several, separated by commas, are the servers of one cluster
	// InProcess is an embedded server to connect to without a socket, instead of URL.
	InProcess nats.InProcessConnProvider

	Creds          string // path of a credentials file
	NKey           string // path of a file with an nkey seed
	User, Password string
	Token          string
	TLS            TLS

	Name   string       // how the server's monitoring shows the connection
	Logger *slog.Logger // nil: slog.Default
	// Trouble is kept up to date with what the connection suffers from. Nil: nobody asks.
	Trouble *Trouble
}

// TLS is paths of PEM files. CA alone verifies a server of one's own authority; Cert and Key are what this client shows.
type TLS struct{ CA, Cert, Key string }

// Connect returns a connection that is for good: it may not stand yet, it is retried for ever when it is lost, and refused credentials are
// retried too, since they may be put right. Its loss and its return are logged, once each. The error is of the configuration: a bad
// URL, a file that cannot be read; or of ctx, which bounds the call and not the connection.
func Connect(ctx context.Context, cfg Config) (*nats.Conn, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	opts, err := options(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	type result struct {
		nc  *nats.Conn
		err error
	}
	// The first attempt tries every server of the list, each with a time-out of its own.
	connected := make(chan result, 1)
	go func() {
		nc, err := nats.Connect(cfg.URL, opts...)
		connected <- result{nc, err}
	}()
	select {
	case r := <-connected:
		if r.err != nil {
			return nil, fmt.Errorf("connect to nats: %w", r.err)
		}
		return r.nc, nil
	case <-ctx.Done():
		go func() {
			if r := <-connected; r.nc != nil {
				r.nc.Close()
			}
		}()
		return nil, fmt.Errorf("connect to nats: %w", context.Cause(ctx))
	}
}

func options(cfg Config) ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name(cfg.Name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectJitter, reconnectJitterTLS),
		nats.IgnoreAuthErrorAbort(),
		nats.DrainTimeout(drainTimeout),
	}
	if cfg.InProcess != nil {
		opts = append(opts, nats.InProcessServer(cfg.InProcess))
	}
	auth, err := authentication(cfg)
	if err != nil {
		return nil, err
	}
	return append(append(opts, auth...), logging(cfg.Logger, cfg.Trouble)...), nil
}

func authentication(cfg Config) ([]nats.Option, error) {
	var opts []nats.Option
	if cfg.Creds != "" {
		opts = append(opts, nats.UserCredentials(cfg.Creds))
	}
	if cfg.NKey != "" {
		nkey, err := nats.NkeyOptionFromSeed(cfg.NKey)
		if err != nil {
			return nil, fmt.Errorf("nkey %s: %w", cfg.NKey, err)
		}
		opts = append(opts, nkey)
	}
	if cfg.User != "" {
		opts = append(opts, nats.UserInfo(cfg.User, cfg.Password))
	}
	if cfg.Token != "" {
		opts = append(opts, nats.Token(cfg.Token))
	}
	if cfg.TLS != (TLS{}) {
		opts = append(opts, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12}))
	}
	if cfg.TLS.CA != "" {
		opts = append(opts, nats.RootCAs(cfg.TLS.CA))
	}
	if cfg.TLS.Cert != "" || cfg.TLS.Key != "" {
		opts = append(opts, nats.ClientCert(cfg.TLS.Cert, cfg.TLS.Key))
	}
	return opts, nil
}

// logging reports each outage once, however many attempts it takes: the reason when it begins, the server when it is over.
func logging(log *slog.Logger, trouble *Trouble) []nats.Option {
	var away atomic.Bool
	lost := func(err error) {
		trouble.lost(err)
		if !away.Swap(true) {
			log.Warn("nats is away, reconnecting", "error", err)
		}
	}
	back := func(nc *nats.Conn) {
		trouble.back()
		if away.Swap(false) {
			log.Info("nats is back", "server", nc.ConnectedUrlRedacted())
		}
	}
	return []nats.Option{
		nats.ConnectHandler(back),
		nats.ReconnectHandler(back),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { lost(err) }),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if !nc.IsClosed() && !nc.IsDraining() { // else we are the ones who leave
				lost(err)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			trouble.heard(err)
			if sub != nil {
				log.Error("nats", "error", err, "subject", sub.Subject)
				return
			}
			if !away.Load() { // a refused reconnect is part of the outage
				log.Error("nats", "error", err)
			}
		}),
	}
}
