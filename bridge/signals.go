package bridge

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/subjects"
)

// signalsRoute is the built-in route: a message on the signal subject is a signal of that name, to whom its headers say.
func signalsRoute(space subjects.Space) *route {
	rt := newRoute(space, Route{
		Name: subjects.SignalsRoute, Stream: space.SignalsStream(), Subjects: []string{space.SignalFilter()},
	})
	rt.builtin = true
	return rt
}

// headerTarget is the instance that the headers of a message name.
func headerTarget(h nats.Header) (engine.Ref, error) {
	key, id := h.Get(subjects.HeaderCorrelationKey), h.Get(subjects.HeaderInstanceID)
	switch {
	case key != "" && id != "":
		return engine.Ref{}, fmt.Errorf("has both %s and %s: send one", subjects.HeaderCorrelationKey, subjects.HeaderInstanceID)
	case id != "":
		u, err := uuid.Parse(id)
		if err != nil {
			return engine.Ref{}, fmt.Errorf("%s: %w", subjects.HeaderInstanceID, err)
		}
		if u == uuid.Nil {
			return engine.Ref{}, errors.New(subjects.HeaderInstanceID + ": is the nil UUID")
		}
		return engine.ByID(u), nil
	}
	if err := ident.Key(subjects.HeaderCorrelationKey, key); err != nil {
		return engine.Ref{}, err
	}
	project := h.Get(subjects.HeaderProject)
	if project != "" {
		if err := ident.Token(subjects.HeaderProject, project); err != nil {
			return engine.Ref{}, err
		}
	}
	return engine.ByKey(project, key), nil
}
