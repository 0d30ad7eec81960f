package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/expr"
	"github.com/pointsman/pointsman/internal/schema"
	"github.com/pointsman/pointsman/remote"
)

// registerValidators registers what the configuration says of the updates of its machines. The bridge asks them; a worker makes known
// that they are there, so that no bridge which lacks them accepts an update unasked.
func (p *parts) registerValidators(cfg *config.Config) error {
	machines := slices.SortedStableFunc(slices.Values(cfg.Machines), func(a, b config.Machine) int { return cmp.Compare(a.Version, b.Version) })
	for _, m := range machines {
		for _, u := range m.Updates {
			v, err := p.validator(m.Name, u)
			if err == nil {
				err = p.client.Validate(m.Name, u.Name, v)
			}
			if err != nil {
				return cfg.Errorf("machines", "machine %s, update %s: %v", m.Name, u.Name, err)
			}
		}
	}
	return nil
}

// validator asks all that the configuration names, until something refuses.
func (p *parts) validator(machine string, u config.Update) (engine.Validator, error) {
	var all []engine.Validator
	if u.Schema != "" {
		s, err := schema.Compile([]byte(u.Schema))
		if err != nil {
			return nil, err
		}
		all = append(all, schemaValidator(s))
	}
	if u.When != "" {
		when, err := expr.CompileWhen(u.When)
		if err != nil {
			return nil, err
		}
		all = append(all, whenValidator(when, u.Reason))
	}
	if u.Remote {
		all = append(all, remote.Validator(p.nc, p.space, machine, u.Name, 0))
	}
	return func(ctx context.Context, arg json.RawMessage) error {
		ctx, cancel := context.WithTimeout(ctx, u.Timeout)
		defer cancel()
		for _, v := range all {
			if err := v(ctx, arg); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func schemaValidator(s *schema.Schema) engine.Validator {
	return func(_ context.Context, arg json.RawMessage) error {
		reason, err := s.Check(arg)
		if err == nil && reason != "" {
			err = engine.Refuse(reason)
		}
		return err
	}
}

// whenValidator refuses too what the condition cannot be asked of: the argument is not what it is about.
func whenValidator(when *expr.Condition, reason string) engine.Validator {
	if reason == "" {
		reason = fmt.Sprintf("want %s", when.Source())
	}
	return func(_ context.Context, arg json.RawMessage) error {
		holds, err := when.Eval(&expr.Input{Payload: arg})
		switch {
		case err != nil:
			return engine.Refuse(err.Error())
		case !holds:
			return engine.Refuse(reason)
		}
		return nil
	}
}

// validateTimeout leaves each validator of the configuration its own time.
func validateTimeout(cfg *config.Config) (most time.Duration) {
	most = 10 * time.Second
	for _, m := range cfg.Machines {
		for _, u := range m.Updates {
			most = max(most, u.Timeout)
		}
	}
	return most
}
