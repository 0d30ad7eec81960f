package pgserver

import (
	"context"
	"fmt"
)

// Crash ends the server with SIGKILL and starts it again on the same data, which it recovers. It returns when the server takes
// connections again, at the URL it had before unless Config.Port is -1. It must not be called together with another method.
func (s *Server) Crash() error {
	s.proc.kill()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := s.boot(ctx); err != nil {
		return fmt.Errorf("start postgres again: %w", err)
	}
	return nil
}
