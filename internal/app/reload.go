package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/filewatch"
)

// hangups are SIGHUPs that a program has got.
type hangups struct{ got chan os.Signal }

// listenForHUP keeps SIGHUP from ending the program, where there is a file to read anew.
func listenForHUP(cfg *config.Config) hangups {
	h := hangups{make(chan os.Signal, 1)}
	if cfg.Source() != nil {
		signal.Notify(h.got, syscall.SIGHUP)
	}
	return h
}

func (h hangups) stop() { signal.Stop(h.got) }

// reloader gives a bridge the routes of its file as it changes. What else changes there waits for the next start.
type reloader struct {
	cfg     *config.Config // as it was at the start
	source  *config.Source // as it was read last, good or bad; nil: there is no file
	bridge  *bridge.Bridge
	mapper  *bridge.Mapper
	hup     hangups
	reloads *prometheus.CounterVec
	log     *slog.Logger
}

func newReloader(cfg *config.Config, b *bridge.Bridge, mapper *bridge.Mapper, hup hangups, metrics prometheus.Registerer, log *slog.Logger) (*reloader, error) {
	r := &reloader{cfg: cfg, source: cfg.Source(), bridge: b, mapper: mapper, hup: hup, log: log}
	r.reloads = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pointsman_config_reloads_total", Help: "Times that the file was read anew: ok, or error, which left the routes as they were.",
	}, []string{"result"})
	for _, result := range []string{"ok", "error"} {
		r.reloads.WithLabelValues(result)
	}
	return r, metrics.Register(r.reloads)
}

// run until ctx is canceled.
func (r *reloader) run(ctx context.Context) {
	if r.source == nil {
		return
	}
	changed := make(chan struct{}, 1)
	watcher, err := filewatch.New(r.source.File(), filewatch.Quiet)
	if err != nil {
		r.log.Warn("changes of the configuration are not noticed: send SIGHUP", "error", err)
	} else {
		changed <- struct{}{} // it may have, between the start and the watch
		watched := make(chan struct{})
		defer func() { <-watched }()
		go func() {
			defer close(watched)
			watcher.Run(ctx, func() {
				select {
				case changed <- struct{}{}:
				default: // it is to be read anyway
				}
			})
		}()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			r.reread(false)
		case <-r.hup.got:
			r.reread(true)
		}
	}
}

// reread the file, and take its routes where it has another text, or where asked to.
func (r *reloader) reread(asked bool) {
	now, err := r.source.Reread()
	if err != nil {
		r.failed(err)
		return
	}
	if now.Same(r.source) && !asked {
		return
	}
	r.source = now
	if err := r.take(now); err != nil {
		r.failed(err)
	}
}

func (r *reloader) take(now *config.Source) error {
	next, later, err := r.cfg.Reload(now)
	if err != nil {
		return err
	}
	mapper, routes, err := compileRoutes(next)
	if err != nil {
		return err
	}
	change, err := r.bridge.Reload(routes, !next.SignalsRoute)
	if err != nil {
		return fmt.Errorf("routes: %w", err)
	}
	r.mapper.Replace(mapper)
	r.reloads.WithLabelValues("ok").Inc()
	r.log.Info("configuration reloaded", "file", now.File(), "added", change.Added, "changed", change.Changed, "removed", change.Removed)
	if len(later) > 0 {
		r.log.Warn("a change of the configuration takes effect at the next start", "file", now.File(), "sections", later)
	}
	return nil
}

// failed says, on one line, all that is wrong.
func (r *reloader) failed(err error) {
	r.reloads.WithLabelValues("error").Inc()
	r.log.Error("configuration not reloaded: the routes stay as they are", "error", strings.ReplaceAll(err.Error(), "\n", "; "))
}
