package engine

import (
	"context"
	"fmt"

	"github.com/pointsman/pointsman/internal/store"
)

// ContentError: a machine version has been registered with other content.
type ContentError struct {
	Machine string
	Version int
}

func (e *ContentError) Error() string {
	return fmt.Sprintf("machine %s version %d is known with another content: instances of it may be live, so give what has changed another version", e.Machine, e.Version)
}

// CheckContent registers what the machines do, of those that say so ([Definition.Content]), for good: the error is a [*ContentError] where one
// is known with another content.
func (c *Client) CheckContent(ctx context.Context, machines ...*Machine) error {
	var rows []store.Machine
	var hashes []string
	for _, m := range machines {
		if m.content != "" {
			rows, hashes = append(rows, store.Machine{Name: m.name, Version: m.version, Start: m.start, Queue: m.queue}), append(hashes, m.content)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	other, err := c.store.Content(ctx, rows, hashes)
	if err != nil {
		return fmt.Errorf("check content: %w", err)
	}
	for _, m := range other {
		return &ContentError{Machine: m.Name, Version: m.Version}
	}
	return nil
}
