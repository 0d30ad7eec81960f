package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/internal/ident"
)

// Validator decides on an update before it is delivered, in the request of whoever sends it. It is given the bare argument, may ask other
// systems, and has the time of Config.ValidateTimeout. Nil accepts, an error of [Refuse] refuses. Any other error, a panic and a time-out
// are a failure of the validator: nothing is delivered then, and nothing is decided.
//
// It may run more than once for one update: for requests that are sent again before the first is decided.
type Validator func(ctx context.Context, arg json.RawMessage) error

// Refuse is the error with which a [Validator] refuses an update. The reason is for whoever sent it.
func Refuse(reason string) error {
	return &RefusedError{Reason: clean(cmp.Or(reason, "refused"))}
}

// RefusedError: a validator refused an update.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

// ValidatorError: the validator of an update failed, or could not be asked. Nothing was delivered; the same request may go another time.
type ValidatorError struct {
	Machine, Update string
	Err             error
}

func (e *ValidatorError) Error() string {
	return fmt.Sprintf("update %q of machine %q cannot be validated, and was not delivered: %v", e.Update, e.Machine, e.Err)
}

func (e *ValidatorError) Unwrap() error { return e.Err }

// ValidatorOf is a validator of arguments of type T. What does not fit T, an unknown field included, is refused.
func ValidatorOf[T any](validate func(ctx context.Context, arg T) error) Validator {
	return func(ctx context.Context, arg json.RawMessage) error {
		var typed T
		d := json.NewDecoder(bytes.NewReader(arg))
		d.DisallowUnknownFields()
		if err := d.Decode(&typed); err != nil {
			return Refuse("the argument does not fit: " + err.Error())
		}
		return validate(ctx, typed)
	}
}

// validators are those of one process.
type validators struct {
	mu  sync.RWMutex
	all map[validated]Validator
}

type validated struct{ machine, update string }

func (v *validators) set(machine, update string, fn Validator) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all[validated{machine, update}] = fn
}

func (v *validators) get(machine, update string) Validator {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.all[validated{machine, update}]
}

// Validate registers the validator of an update of a machine, of all its versions, with this client. There is one: registering again
// replaces it, also one of [Definition]. Without any, every update is accepted.
//
// A validator is asked by the updates of this client. What other programs send, a bridge among them, asks it too where this process has a
// [Worker] of the machine whose Run began later than the registration, and serves its validators to others (package remote).
func (c *Client) Validate(machine, update string, v Validator) error {
	if err := checkValidator(machine, update, v); err != nil {
		return fmt.Errorf("validate: %w", err)
	}
	c.validators.set(machine, update, v)
	return nil
}

func checkValidator(machine, update string, v Validator) error {
	err := errors.Join(ident.Token("machine", machine), ident.Name("update", update))
	if v == nil {
		err = errors.Join(err, &InvalidError{Field: "validator", Reason: fmt.Sprintf("of update %q has no code", update)})
	}
	return err
}

// Validators are the updates that have a validator in this process, by machine, in the order of their names.
func (c *Client) Validators() map[string][]string {
	c.validators.mu.RLock()
	defer c.validators.mu.RUnlock()
	names := map[string][]string{}
	for v := range c.validators.all {
		names[v.machine] = append(names[v.machine], v.update)
	}
	for _, updates := range names {
		slices.Sort(updates)
	}
	return names
}

// Judge asks the validator that this process has for an update, and delivers nothing. Nil accepts, which is also what it comes to where
// there is none; the error is a [*RefusedError] or a [*ValidatorError].
func (c *Client) Judge(ctx context.Context, machine, update string, arg json.RawMessage) error {
	v := c.validators.get(machine, update)
	if v == nil {
		return nil
	}
	return c.judge(ctx, machine, update, v, arg)
}

// judge bounds a validator in time, also one that does not heed its context: that one goes on by itself, and what it says counts no more.
func (c *Client) judge(ctx context.Context, machine, update string, v Validator, arg json.RawMessage) error {
	ctx, cancel := context.WithTimeout(ctx, c.validateTimeout)
	defer cancel()
	said := make(chan error, 1)
	go func() {
		err := errValidatorGoexit
		defer func() {
			if p := recover(); p != nil {
				c.log.Error("a validator panicked", "machine", machine, "update", update, "panic", p, "stack", string(debug.Stack()))
				err = errors.New("its validator panicked: the log of the program that has it says where")
			}
			said <- err
		}()
		err = v(ctx, arg)
	}()
	var err error
	select {
	case err = <-said:
	case <-ctx.Done():
		err = ctx.Err()
	}
	var refused *RefusedError
	if err == nil || errors.As(err, &refused) {
		return err
	}
	if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("its validator did not decide within %s: %w", c.validateTimeout, err)
	}
	return &ValidatorError{machine, update, err}
}

var errValidatorGoexit = errors.New("its validator ended its goroutine")

// defaultValidateTimeout is shorter than those who ask wait for an answer.
const defaultValidateTimeout = 10 * time.Second

// validate finds the validator of an update, here or in another program, and asks it.
func (c *Client) validate(ctx context.Context, in Instance, update string, arg json.RawMessage) error {
	if v := c.validators.get(in.Machine, update); v != nil {
		return c.judge(ctx, in.Machine, update, v, arg)
	}
	elsewhere, err := c.store.Validated(ctx, in.Machine, in.Version, update)
	if err != nil || !elsewhere {
		return err
	}
	if c.askValidator == nil {
		return &ValidatorError{in.Machine, update, errors.New("its validator is in another program, which this client cannot ask: set engine.Config.AskValidator")}
	}
	return c.judge(ctx, in.Machine, update, c.askValidator(in.Machine, update), arg)
}

// validatorsOf are the updates of a machine that are validated in this process.
func (w *Worker) validatorsOf(m *Machine) []string {
	updates := w.client.Validators()[m.name]
	if updates == nil {
		updates = []string{}
	}
	return updates
}

// adopt registers the validators of machines, the newest version last: there is one for all versions.
func (c *Client) adopt(machines []*Machine) {
	machines = slices.SortedFunc(slices.Values(machines), func(a, b *Machine) int { return a.version - b.version })
	for _, m := range machines {
		for _, update := range slices.Sorted(maps.Keys(m.validators)) {
			c.validators.set(m.name, update, m.validators[update])
		}
	}
}
