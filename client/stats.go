package client

import "context"

// Stats counts the instances of the project by their status, each up to 10,000.
func (c *Client) Stats(ctx context.Context) (stats Stats, err error) {
	err = c.get(ctx, nil, &stats, "stats")
	return stats, err
}

// Workers returns a page of the workers, by name; cursor is "" for the first.
func (c *Client) Workers(ctx context.Context, cursor string) (page WorkerPage, err error) {
	err = c.get(ctx, parameters(0, "cursor", cursor), &page, "workers")
	return page, err
}

// Queues returns a page of the queues in which something is ready, or that a worker serves, by name; cursor is "" for the first.
func (c *Client) Queues(ctx context.Context, cursor string) (page QueuePage, err error) {
	err = c.get(ctx, parameters(0, "cursor", cursor), &page, "queues")
	return page, err
}

// Held returns a page of the signals that wait for an instance to start with their key.
func (c *Client) Held(ctx context.Context, f HeldFilter) (page HeldPage, err error) {
	query := parameters(f.Limit, "correlation_key", f.CorrelationKey, "correlation_prefix", f.CorrelationPrefix, "cursor", f.Cursor)
	err = c.get(ctx, query, &page, "held")
	return page, err
}
