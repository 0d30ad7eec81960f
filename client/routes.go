package client

import (
	"context"
	"net/http"

	"github.com/pointsman/pointsman/internal/api"
)

// Routes says where the routes of the bridge that answers stand. What is about routes, messages, dead letters, workers and queues belongs to
// no project: it takes the admin token.
func (c *Client) Routes(ctx context.Context) ([]Route, error) {
	var routes api.Routes
	err := c.get(ctx, nil, &routes, "routes")
	return routes.Items, err
}

// TestRoutes says what the routes would make of a message. It changes nothing.
func (c *Client) TestRoutes(ctx context.Context, m TestMessage) ([]RouteTest, error) {
	var tests api.RoutesTest
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "routes", "test"}, body: m, again: true}, &tests)
	return tests.Routes, err
}

// PauseRoute keeps all bridges from reading a route, until it is resumed.
func (c *Client) PauseRoute(ctx context.Context, name string) (p RoutePause, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "routes", name, "pause"}, again: true}, &p)
	return p, err
}

// ResumeRoute ends a pause. A route that the configuration pauses stays paused, and the answer says so.
func (c *Client) ResumeRoute(ctx context.Context, name string) (p RoutePause, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "routes", name, "resume"}, again: true}, &p)
	return p, err
}

// RewindRoute has a route read its stream again from a time or a sequence on: what was taken in before is a duplicate. It is sent once.
func (c *Client) RewindRoute(ctx context.Context, r Rewind) (done Rewound, err error) {
	err = c.rewind(ctx, r, false, &done)
	return done, err
}

// RewindDryRun counts what would become of the messages that a rewind brings again, of Limit at most 20,000; the answer's NextSeq is where
// the next one goes on. It changes nothing.
func (c *Client) RewindDryRun(ctx context.Context, r Rewind) (counts RewindCounts, err error) {
	err = c.rewind(ctx, r, true, &counts)
	return counts, err
}

func (c *Client) rewind(ctx context.Context, r Rewind, dryRun bool, answer any) error {
	path := []string{"v1", "routes", r.Name, "rewind"}
	r.Name, r.DryRun = "", dryRun
	return c.do(ctx, call{method: http.MethodPost, path: path, body: r, again: dryRun}, answer)
}

// Message returns the fate of a message: by its stream and sequence, or by its Nats-Msg-Id.
func (c *Client) Message(ctx context.Context, m MessageRef) (fate Message, err error) {
	err = c.get(ctx, parameters(0, "stream", m.Stream, "seq", number(m.Seq), "msg_id", m.MsgID), &fate, "messages")
	return fate, err
}
