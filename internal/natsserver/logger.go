package natsserver

import (
	"fmt"
	"log/slog"
)

// logger passes the server's log on and keeps the error that stops it.
type logger struct {
	to    *slog.Logger
	fatal chan error
}

func newLogger(to *slog.Logger) *logger {
	if to == nil {
		to = slog.New(slog.DiscardHandler)
	}
	return &logger{to: to, fatal: make(chan error, 1)}
}

func (l *logger) Noticef(format string, v ...any) { l.to.Debug(fmt.Sprintf(format, v...)) }
func (l *logger) Warnf(format string, v ...any)   { l.to.Warn(fmt.Sprintf(format, v...)) }
func (l *logger) Errorf(format string, v ...any)  { l.to.Error(fmt.Sprintf(format, v...)) }
func (l *logger) Debugf(format string, v ...any)  { l.to.Debug(fmt.Sprintf(format, v...)) }
func (l *logger) Tracef(string, ...any)           {}

func (l *logger) Fatalf(format string, v ...any) {
	select {
	case l.fatal <- fmt.Errorf(format, v...):
	default: // the first is the cause
	}
}
