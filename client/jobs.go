package client

import (
	"context"
	"net/http"

	"github.com/google/uuid"
)

// StartJob asks for work on all instances that a filter finds, and returns the job at once: bridges do it. Without an IdempotencyKey it is
// given one, so that there is one job however often the request is sent. The code of the error is conflict where the key was used for
// something else.
func (c *Client) StartJob(ctx context.Context, n NewJob) (j Job, err error) {
	key := n.IdempotencyKey
	if n.IdempotencyKey = ""; key == "" {
		key = uuid.NewString()
	}
	err = c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "jobs"}, body: n, key: key, again: true}, &j)
	return j, err
}

// Job says how far a job has come. It has ended where EndedAt is set.
func (c *Client) Job(ctx context.Context, id uuid.UUID) (j Job, err error) {
	err = c.get(ctx, nil, &j, "jobs", id.String())
	return j, err
}

// Jobs returns a page of the jobs, the newest first, without the errors of each; a limit of 0 is the server's, cursor is "" for the first.
func (c *Client) Jobs(ctx context.Context, limit int, cursor string) (page JobPage, err error) {
	err = c.get(ctx, parameters(limit, "cursor", cursor), &page, "jobs")
	return page, err
}

// CancelJob ends a job after the batch that is in work. The code of the error is conflict where it has ended otherwise.
func (c *Client) CancelJob(ctx context.Context, id uuid.UUID) (j Job, err error) {
	err = c.do(ctx, call{method: http.MethodDelete, path: []string{"v1", "jobs", id.String()}, again: true}, &j)
	return j, err
}
