package contracttest

import (
	"context"
	"fmt"
	"strconv"

	"github.com/pointsman/pointsman/client"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

// operator asks about dead letters, routes and messages over one surface.
type operator interface {
	deadLetters(ctx context.Context, r api.DeadLettersRequest) (api.Page[api.DeadLetter], error)
	deadLetter(ctx context.Context, seq uint64) (api.DeadLetterContent, error)
	replay(ctx context.Context, seq uint64, dryRun bool) (api.LetterResult, error)
	drop(ctx context.Context, seq uint64) (api.LetterResult, error)
	message(ctx context.Context, stream string, seq uint64) (api.Message, error)
	routes(ctx context.Context) ([]api.Route, error)
	pauseRoute(ctx context.Context, verb, name string) (api.RoutePause, error) // pause, resume
}

func (d overHTTP) deadLetters(ctx context.Context, r api.DeadLettersRequest) (api.Page[api.DeadLetter], error) {
	return d.DeadLetters(ctx, r)
}

func (d overHTTP) deadLetter(ctx context.Context, seq uint64) (api.DeadLetterContent, error) {
	return d.DeadLetter(ctx, seq)
}

func (d overHTTP) replay(ctx context.Context, seq uint64, dryRun bool) (api.LetterResult, error) {
	return d.ReplayDeadLetter(ctx, seq, dryRun)
}

func (d overHTTP) drop(ctx context.Context, seq uint64) (api.LetterResult, error) {
	return d.DropDeadLetter(ctx, seq, false)
}

func (d overHTTP) message(ctx context.Context, stream string, seq uint64) (api.Message, error) {
	return d.Message(ctx, client.MessageRef{Stream: stream, Seq: seq})
}

func (d overHTTP) routes(ctx context.Context) ([]api.Route, error) { return d.Routes(ctx) }

func (d overHTTP) pauseRoute(ctx context.Context, verb, name string) (api.RoutePause, error) {
	do := map[string]func(context.Context, string) (client.RoutePause, error){"pause": d.PauseRoute, "resume": d.ResumeRoute}[verb]
	return do(ctx, name)
}

func (d overNATS) deadLetters(ctx context.Context, r api.DeadLettersRequest) (api.Page[api.DeadLetter], error) {
	return ask[api.Page[api.DeadLetter]](ctx, d, natsapi.VerbDeadLetters, r)
}

func (d overNATS) deadLetter(ctx context.Context, seq uint64) (api.DeadLetterContent, error) {
	return ask[api.DeadLetterContent](ctx, d, natsapi.VerbDeadLetter, api.DeadLetterRequest{Seq: seq})
}

func (d overNATS) replay(ctx context.Context, seq uint64, dryRun bool) (api.LetterResult, error) {
	page, err := ask[api.Page[api.LetterResult]](ctx, d, natsapi.VerbReplay, api.LettersChoice{Seq: seq, DryRun: dryRun})
	return only(page.Items, err)
}

func (d overNATS) drop(ctx context.Context, seq uint64) (api.LetterResult, error) {
	page, err := ask[api.Page[api.LetterResult]](ctx, d, natsapi.VerbDrop, api.LettersChoice{Seq: seq})
	return only(page.Items, err)
}

// only is the result of a request for one dead letter.
func only(results []api.LetterResult, err error) (api.LetterResult, error) {
	if err != nil {
		return api.LetterResult{}, err
	}
	if len(results) != 1 {
		return api.LetterResult{}, fmt.Errorf("%d results, want 1", len(results))
	}
	return results[0], nil
}

func (d overNATS) message(ctx context.Context, stream string, seq uint64) (api.Message, error) {
	return ask[api.Message](ctx, d, natsapi.VerbMessage, api.MessageRequest{Stream: stream, Seq: seq})
}

func (d overNATS) routes(ctx context.Context) ([]api.Route, error) {
	all, err := ask[api.Routes](ctx, d, natsapi.VerbRoutes, api.RoutesRequest{})
	return all.Items, err
}

func (d overNATS) pauseRoute(ctx context.Context, verb, name string) (api.RoutePause, error) {
	return ask[api.RoutePause](ctx, d, "routes-"+verb, api.RouteRequest{Name: name})
}

func (d onCommandLine) deadLetters(ctx context.Context, r api.DeadLettersRequest) (api.Page[api.DeadLetter], error) {
	return run[api.Page[api.DeadLetter]](ctx, d, "dlq list", "--route", r.Route, "--limit", limitOf(r.Limit), "--cursor", r.Cursor)
}

func (d onCommandLine) deadLetter(ctx context.Context, seq uint64) (api.DeadLetterContent, error) {
	return run[api.DeadLetterContent](ctx, d, "dlq show", strconv.FormatUint(seq, 10))
}

// tally is what dlq replay and drop print.
type tally struct {
	Items []api.LetterResult `json:"items"`
}

func (d onCommandLine) replay(ctx context.Context, seq uint64, dryRun bool) (api.LetterResult, error) {
	done, err := run[tally](ctx, d, "dlq replay", "--dry-run="+strconv.FormatBool(dryRun), strconv.FormatUint(seq, 10))
	return only(done.Items, err)
}

func (d onCommandLine) drop(ctx context.Context, seq uint64) (api.LetterResult, error) {
	done, err := run[tally](ctx, d, "dlq drop", "--yes", strconv.FormatUint(seq, 10))
	return only(done.Items, err)
}

func (d onCommandLine) message(ctx context.Context, stream string, seq uint64) (api.Message, error) {
	return run[api.Message](ctx, d, "message", stream, strconv.FormatUint(seq, 10))
}

func (d onCommandLine) routes(ctx context.Context) ([]api.Route, error) {
	all, err := run[api.Routes](ctx, d, "routes list")
	return all.Items, err
}

func (d onCommandLine) pauseRoute(ctx context.Context, verb, name string) (api.RoutePause, error) {
	return run[api.RoutePause](ctx, d, "routes "+verb, name)
}
