package subjects

import "testing"

func TestNames(t *testing.T) {
	t.Parallel()
	standard, err := New("")
	if err != nil {
		t.Fatal(err)
	}
	nested, err := New("acme.eu-1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ got, want string }{
		{standard.Prefix(), "pointsman"},
		{standard.Signal("payment.confirmed"), "pointsman.signal.payment.confirmed"},
		{standard.SignalFilter(), "pointsman.signal.>"},
		{standard.Outcome("default", "order", "done"), "pointsman.outcome.default.order.done"},
		{standard.OutcomeFilter(), "pointsman.outcome.>"},
		{standard.DeadLetter("payments"), "pointsman.dlq.payments"},
		{standard.DeadLetterFilter(), "pointsman.dlq.>"},
		{standard.Step("order", "ship.now"), "pointsman.step.order.ship.now"},
		{standard.Validate("order", "approve"), "pointsman.validate.order.approve"},
		{standard.Wake("default"), "pointsman.wake.default"},
		{standard.WakeFilter(), "pointsman.wake.*"},
		{standard.Notice("ended"), "pointsman.notice.ended"},
		{standard.NoticeFilter(), "pointsman.notice.*"},
		{standard.API("start"), "pointsman.api.start"},
		{standard.SignalsStream(), "POINTSMAN_SIGNALS"},
		{standard.OutcomesStream(), "POINTSMAN_OUTCOMES"},
		{standard.DeadLettersStream(), "POINTSMAN_DLQ"},
		{standard.Durable("payments"), "pointsman-payments"},
		{nested.Wake("default"), "acme.eu-1.wake.default"},
		{nested.SignalsStream(), "ACME_EU-1_SIGNALS"},
		{nested.Durable("payments"), "acme_eu-1-payments"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestNewRefusesPrefix(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{".", "a.", ".a", "a..b", "a.*", "a.>", "a b", "a\n", "$JS", "é"} {
		if _, err := New(prefix); err == nil {
			t.Errorf("New(%q): no error", prefix)
		}
	}
}

func TestSignalName(t *testing.T) {
	t.Parallel()
	names, err := New("")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		subject, want string
		ok            bool
	}{
		{"pointsman.signal.paid", "paid", true},
		{"pointsman.signal.order.paid", "order.paid", true},
		{"pointsman.signal.", "", false},
		{"pointsman.signal", "", false},
		{"pointsman.signals.paid", "", false},
		{"other.signal.paid", "", false},
	} {
		if got, ok := names.SignalName(c.subject); ok != c.ok || ok && got != c.want {
			t.Errorf("SignalName(%q) = %q, %v", c.subject, got, ok)
		}
	}
}

// Every stream must take what is published for it, and no other stream may.
func TestStreamsAreDisjoint(t *testing.T) {
	t.Parallel()
	names, err := New("a.b")
	if err != nil {
		t.Fatal(err)
	}
	filters := []string{names.SignalFilter(), names.OutcomeFilter(), names.DeadLetterFilter(), names.WakeFilter(), names.NoticeFilter()}
	published := []string{names.Signal("x.y"), names.Outcome("p", "m", "done"), names.DeadLetter("r"), names.Wake("q")}
	for i, filter := range filters {
		for j, subject := range published {
			if Match(filter, subject) != (i == j) {
				t.Errorf("Match(%q, %q) = %v", filter, subject, i != j)
			}
		}
	}
}
