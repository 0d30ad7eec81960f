package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/httpapi"
	"github.com/pointsman/pointsman/internal/natsapi"
	"github.com/pointsman/pointsman/internal/natsio"
	"github.com/pointsman/pointsman/subjects"
)

// requestTimeout is how long a command waits for an answer.
const requestTimeout = 30 * time.Second

// connection are the flags of a command that asks a bridge.
type connection struct {
	*options
	output
	natsURL string
	url     string
	token   string
	project string
}

func (o *options) connection() *connection { return &connection{options: o} }

// add the flags to a command.
func (n *connection) add(c *cobra.Command) *cobra.Command {
	n.addURL(c)
	c.Flags().StringVar(&n.project, "project", "", "project (default: the configuration's)")
	return c
}

// addURL adds those of a command that asks for what belongs to no project.
func (n *connection) addURL(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&n.url, "url", "", "ask over HTTP: URL of a bridge, as http://127.0.0.1:8080 (default: "+envURL+", else over NATS)")
	c.Flags().StringVar(&n.token, "token", "", "with --url: an API key or the admin token, or @FILE (default: "+envToken+", which other users of the machine do not see)")
	return n.addNATS(c)
}

// addNATS adds those of a command that asks NATS itself.
func (n *connection) addNATS(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&n.natsURL, "nats-url", "", "NATS server (default: the configuration's)")
	n.addOutput(c)
	return c
}

// What is asked over HTTP, where no flag says so.
const (
	envURL   = "POINTSMAN_URL"
	envToken = "POINTSMAN_TOKEN"
)

// session is a command that asks a bridge.
type session struct {
	*connection
	client asker
	http   *httpapi.Client // nil: over NATS
	conn   *nats.Conn      // nil: over HTTP
	at     string          // who is asked
	out    io.Writer
	errOut io.Writer
}

// run connects, over HTTP where a flag or the environment says so and else over NATS, and does what the command does.
func (n *connection) run(c *cobra.Command, do func(ctx context.Context, s *session) error) error {
	if err := oneOf(c, "url", "nats-url"); err != nil {
		return err
	}
	if n.url == "" && n.natsURL == "" {
		n.url = os.Getenv(envURL)
	}
	if n.url == "" {
		if n.token != "" {
			return usage(c, errors.New("--token goes with --url: over NATS the configuration says who one is"))
		}
		return n.runNATS(c, do)
	}
	token, err := n.bearer(c)
	if err != nil {
		return err
	}
	client, err := httpapi.NewClient(n.url, token, n.project)
	if err != nil {
		return usage(c, fmt.Errorf("--url, or %s: %w", envURL, err))
	}
	s := &session{connection: n, client: overHTTP{client}, http: client, at: client.URL, out: c.OutOrStdout(), errOut: c.ErrOrStderr()}
	return s.explain(do(c.Context(), s))
}

// bearer is what the API knows the caller by.
func (n *connection) bearer(c *cobra.Command) (string, error) {
	if n.token == "" {
		return os.Getenv(envToken), nil
	}
	token, err := content(c, n.token)
	return strings.TrimSpace(string(token)), err
}

// runNATS connects to NATS.
func (n *connection) runNATS(c *cobra.Command, do func(ctx context.Context, s *session) error) error {
	cfg, err := n.configured(c)
	if err != nil {
		return err
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
	client := &natsapi.Client{Conn: nc, Subjects: space, Project: n.project}
	if n.project == "" && cfg.Project != config.Default().Project {
		client.Project = cfg.Project
	}
	s := &session{connection: n, client: client, conn: nc, at: nc.ConnectedUrlRedacted(), out: c.OutOrStdout(), errOut: c.ErrOrStderr()}
	return s.explain(do(c.Context(), s))
}

// configured is the configuration, with the server that the command names.
func (n *connection) configured(c *cobra.Command) (*config.Config, error) {
	cfg, err := n.load(c)
	if err == nil && n.natsURL != "" {
		cfg.NATS.URL = n.natsURL
	}
	return cfg, err
}

// dial connects to the server of the configuration.
func (n *connection) dial(c *cobra.Command) (*config.Config, *nats.Conn, error) {
	cfg, err := n.configured(c)
	if err != nil {
		return nil, nil, err
	}
	nc, err := dial(cfg)
	return cfg, nc, err
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
	var unreached *url.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, natsapi.ErrNoService):
		return fmt.Errorf("%w on %s: is one running? (pointsman dev, or pointsman bridge --config FILE)", err, s.at)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the bridge on %s did not answer within %s: its log says why", s.at, requestTimeout)
	case errors.As(err, &unreached):
		return fmt.Errorf("%s: %w\nIs a bridge running there? --url or %s says where it is, and \"pointsman dev\" starts one", s.at, unreached.Err, envURL)
	case errors.As(err, &refused) && refused.Code == api.CodeUnauthorized && s.as != "json":
		return fmt.Errorf("%s\n--token or %s is who you are; \"pointsman keys create\" makes a key", lineOf(refused), envToken)
	case errors.As(err, &refused) && s.as == "json":
		if body, e := json.Marshal(api.ErrorBody{Error: refused}); e == nil {
			return errors.New(string(body))
		}
	case errors.As(err, &refused):
		return errors.New(lineOf(refused))
	}
	return err
}

// lineOf is a refusal as a line.
func lineOf(e *api.Error) string { return e.Code + ": " + strings.TrimPrefix(e.Message, e.Code+": ") }
