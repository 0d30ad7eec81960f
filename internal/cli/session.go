package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/natsapi"
	"github.com/pointsman/pointsman/internal/natsio"
	"github.com/pointsman/pointsman/subjects"
)

// requestTimeout is how long a command waits for an answer.
const requestTimeout = 30 * time.Second

// connection are the flags of a command that talks to NATS.
type connection struct {
	*options
	natsURL string
	project string
	json    bool
}

func (o *options) connection() *connection { return &connection{options: o} }

// add the flags to a command.
func (n *connection) add(c *cobra.Command) *cobra.Command {
	n.addURL(c)
	c.Flags().StringVar(&n.project, "project", "", "project (default: the configuration's)")
	return c
}

func (n *connection) addURL(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&n.natsURL, "nats-url", "", "NATS server (default: the configuration's)")
	c.Flags().BoolVar(&n.json, "json", false, "write JSON")
	return c
}

// session is a command that asks a bridge.
type session struct {
	*connection
	client *natsapi.Client
	conn   *nats.Conn
	url    string
	out    io.Writer
	errOut io.Writer
}

// run connects, and does what the command does.
func (n *connection) run(c *cobra.Command, do func(ctx context.Context, s *session) error) error {
	cfg, err := n.load(c)
	if err != nil {
		return err
	}
	if n.natsURL != "" {
		cfg.NATS.URL = n.natsURL
	}
	space, err := subjects.New(cfg.NATS.SubjectPrefix)
	if err != nil {
		return err
	}
	nc, err := dial(cfg)
	if err != nil {
		return err
	}
	defer nc.Close()
	s := &session{connection: n, conn: nc, url: nc.ConnectedUrlRedacted(), out: c.OutOrStdout(), errOut: c.ErrOrStderr()}
	s.client = &natsapi.Client{Conn: nc, Subjects: space, Project: n.project}
	if n.project == "" && cfg.Project != config.Default().Project {
		s.client.Project = cfg.Project
	}
	return s.explain(do(c.Context(), s))
}

// dial connects as the configuration says.
func dial(cfg *config.Config) (*nats.Conn, error) {
	n := cfg.NATS
	nc, err := natsio.Dial(natsio.Config{
		URL: n.URL, Creds: n.Creds, NKey: n.NKey, User: n.User, Password: n.Password, Token: n.Token,
		TLS: natsio.TLS{CA: n.TLS.CA, Cert: n.TLS.Cert, Key: n.TLS.Key}, Name: "pointsman", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w\nIs it running there? --nats-url or POINTSMAN_NATS_URL says where it is, and \"pointsman dev\" starts one", n.URL, err)
	}
	return nc, nil
}

// ask a bridge. headers are pairs of name and value.
func (s *session) ask(ctx context.Context, verb string, request, response any, headers ...string) error {
	return s.askFor(ctx, requestTimeout, verb, request, response, headers...)
}

func (s *session) askFor(ctx context.Context, timeout time.Duration, verb string, request, response any, headers ...string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return s.client.Do(ctx, verb, request, response, headers...)
}

// explain says what to do about an error.
func (s *session) explain(err error) error {
	var refused *api.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, natsapi.ErrNoService):
		return fmt.Errorf("%w on %s: is one running? (pointsman dev, or pointsman bridge --config FILE)", err, s.url)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the bridge on %s did not answer within %s: its log says why", s.url, requestTimeout)
	case errors.As(err, &refused) && s.json:
		if body, e := json.Marshal(api.ErrorBody{Error: refused}); e == nil {
			return errors.New(string(body))
		}
	case errors.As(err, &refused):
		return errors.New(refused.Code + ": " + strings.TrimPrefix(refused.Message, refused.Code+": "))
	}
	return err
}
