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
	for _, m := range updating(cfg) {
		for _, u := range m.updates {
			v, err := p.validator(m.name, u)
			if err == nil {
				err = p.client.Validate(m.name, u.Name, v)
			}
			if err != nil {
				return cfg.Errorf(m.section, "%s, update %s: %v", m.name, u.Name, err)
			}
		}
	}
	return nil
}

// updated is a machine or flow whose updates are validated.
type updated struct {
	section, name string
	version       int
	updates       []config.Update
}

// updating are those of the configuration, the newest version of each last.
func updating(cfg *config.Config) (all []updated) {
	for _, m := range cfg.Machines {
		all = append(all, updated{"machines", m.Name, m.Version, m.Updates})
	}
	for _, f := range cfg.Flows {
		all = append(all, updated{"flows", f.Name, f.Version, f.Updates})
	}
	slices.SortStableFunc(all, func(a, b updated) int { return cmp.Compare(a.version, b.version) })
	return all
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
	for _, m := range updating(cfg) {
		for _, u := range m.updates {
			most = max(most, u.Timeout)
		}
	}
	return most
}
