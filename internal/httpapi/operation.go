package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/auth"
)

// operation is a call of the API, beside its request and its answer.
type operation struct {
	id      string // in the OpenAPI document, where programs make a function of it
	method  string
	path    string
	tag     string // the group it is listed in
	summary string
	scope   auth.Scope // that a caller needs
	shared  bool       // it belongs to no project: an API key has no use of it
	omit    []string   // fields of the request that this call does not have, by their JSON names
	large   bool       // the body may be maxEnvelope times http.max_body: documents of that size are inside it
	waits   bool       // it may take api.MaxWait, where the query has wait
	long    bool       // it may take api.MaxWait: it does its work in many transactions
	streams bool       // the answer is a stream of events
	status  int        // of success; 0: 200
	// statusOf says it where it depends on the answer; nil: it does not.
	statusOf func(answer any) int
	answers  []any // values of the types of the answer, where that is an interface
	statuses []int // other statuses than those of errors that the document should name
}

// maxEnvelope is how many documents of the size http.max_body a body may hold that is an array, or an object around one.
const maxEnvelope = 8

// add an operation whose request belongs to a project, or to none where it is shared.
func add[Req, Res any](s *Server, o operation, do func(ctx context.Context, project string, r Req) (Res, error)) {
	p := planOf(reflect.TypeFor[Req](), o)
	s.document(o, p, reflect.TypeFor[Res]())
	s.mount(o, func(w http.ResponseWriter, r *http.Request, project string) error {
		var req Req
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(transferTimeout)) // a connection that has none, as in tests, needs none
		if err := p.read(r, s.maxBody(o), reflect.ValueOf(&req).Elem()); err != nil {
			return err
		}
		_ = control.SetReadDeadline(time.Time{}) // else it ends the request, as if the client had gone
		_ = control.SetWriteDeadline(time.Now().Add(o.limit(r) + transferTimeout))
		ctx, cancel := context.WithTimeout(r.Context(), o.limit(r))
		defer cancel()
		answer, err := do(ctx, project, req)
		if err != nil {
			return err
		}
		return s.answer(w, r, o, answer)
	})
}

// shared is for what belongs to no project.
func shared[Req, Res any](do func(ctx context.Context, r Req) (Res, error)) func(context.Context, string, Req) (Res, error) {
	return func(ctx context.Context, _ string, r Req) (Res, error) { return do(ctx, r) }
}

// limit of the time that the operation may take.
func (o operation) limit(r *http.Request) time.Duration {
	if o.long || o.waiting(r) {
		return workTimeout + api.MaxWait
	}
	return workTimeout
}

// tagged says whether the answer has an ETag: programs ask for the same again and again. No cache keeps it; who asks may.
func (o operation) tagged() bool { return o.method == http.MethodGet && !o.streams }

func (o operation) waiting(r *http.Request) bool { return o.waits && r.URL.Query().Has("wait") }

func (o operation) success(answer any) int {
	switch {
	case o.statusOf != nil:
		return o.statusOf(answer)
	case o.status != 0:
		return o.status
	default:
		return http.StatusOK
	}
}

func (s *Server) maxBody(o operation) int {
	if o.large {
		return maxEnvelope * s.cfg.MaxBody
	}
	return s.cfg.MaxBody
}
