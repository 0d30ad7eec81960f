package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/internal/devenv"
	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const patience = 90 * time.Second

// stage is an example as pointsman dev --config runs it, with the services of this directory.
type stage struct {
	t        *testing.T
	nc       *nats.Conn
	js       jetstream.JetStream
	outcomes *nats.Subscription
}

func dev(t *testing.T, example string) *stage {
	t.Helper()
	server := natstest.Start(t)
	s := &stage{t: t, nc: server.Conn(t), js: server.JetStream(t)}
	s.must(serve(s.nc))
	var err error
	s.outcomes, err = s.nc.SubscribeSync("pointsman.outcome.default." + example + ".*")
	s.must(err)
	env := map[string]string{"POINTSMAN_HTTP_ADDR": "127.0.0.1:0", "POINTSMAN_WORKER_HTTP_ADDR": "127.0.0.1:0"}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() {
		done <- devenv.Run(ctx, devenv.Options{
			Config: example + "/pointsman.yaml", DatabaseURL: pgtest.Database(t), NATSURL: server.URL, Out: io.Discard, Err: io.Discard, Log: slog.New(slog.DiscardHandler),
			Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("dev: %v", err)
		}
	})
	return s
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// publish waits for the stream that takes it.
func (s *stage) publish(subject, data string) {
	s.t.Helper()
	s.until("published "+subject, func() bool {
		_, err := s.js.Publish(s.t.Context(), subject, []byte(data))
		return err == nil
	})
}

// ask sends a request until its answer is no error.
func (s *stage) ask(verb, request string) {
	s.t.Helper()
	s.until(verb, func() bool {
		m, err := s.nc.Request("pointsman.api."+verb, []byte(request), time.Second)
		return err == nil && m.Header.Get("Nats-Service-Error-Code") == ""
	})
}

func (s *stage) until(what string, so func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("never %s", what)
		}
	}
}

// ends waits for an instance to end, and compares how.
func (s *stage) ends(key, status, result string) {
	s.t.Helper()
	m, err := s.outcomes.NextMsg(patience)
	s.must(err)
	var o struct {
		CorrelationKey string `json:"correlation_key"`
		Status         string
		Result         any
		Reason         string
	}
	s.must(json.Unmarshal(m.Data, &o))
	have, err := json.Marshal(o.Result)
	s.must(err)
	if o.CorrelationKey != key || o.Status != status || string(have) != result {
		s.t.Errorf("%s is %s %s %s\nwant %s %s %s", o.CorrelationKey, o.Status, have, o.Reason, key, status, result)
	}
}

// A verdict that is doubtful is decided by a person; one that is not opens the account at once.
func TestKYC(t *testing.T) {
	t.Parallel()
	s := dev(t, "kyc")
	s.publish("signups.u1.received", `{"user_id": "u1", "name": "Ada"}`)
	s.ask("send", `{"event_key": "aml-check:u1", "payload": {"risk_score": 0.2}}`)
	s.ends("kyc-u1", "done", `{"onboard":{"account":"account-u1"},"reject":null}`)
	s.publish("signups.u2.received", `{"user_id": "u2", "name": "Bob"}`)
	s.ask("send", `{"event_key": "aml-check:u2", "payload": {"risk_score": 0.7}}`)
	s.ask("update", `{"ref": "key:kyc-u2", "name": "decision", "arg": {"approved": false, "by": "alice"}}`)
	s.ends("kyc-u2", "done", `{"onboard":null,"reject":{"by":"alice"}}`)
}

// A cup is shipped; an anvil is paid back, and nothing is left of the order.
func TestOrder(t *testing.T) {
	t.Parallel()
	s := dev(t, "order")
	mails, err := s.nc.SubscribeSync("mails.*")
	s.must(err)
	undone, err := s.nc.SubscribeSync("payments.refund")
	s.must(err)
	released, err := s.nc.SubscribeSync("stock.release")
	s.must(err)
	for id, order := range map[string]struct {
		item, status, result string
		mails                []string
	}{
		"1": {"cup", "done", `{"shipped":{"news":"shipped","parcel":"p1"}}`, []string{`{"news":"received"}`, `{"news":"shipped","parcel":"p1"}`}},
		"2": {"anvil", "failed", `null`, []string{`{"news":"received"}`, `{"news":"canceled"}`}},
	} {
		s.publish("orders."+id+".placed", `{"items": ["`+order.item+`"]}`)
		s.publish("payments."+id+".confirmed", `{"amount": 0}`)
		s.publish("payments."+id+".confirmed", `{"amount": 42}`)
		s.ends("order-"+id, order.status, order.result)
		for _, want := range order.mails {
			m, err := mails.NextMsg(patience)
			s.must(err)
			if m.Subject != "mails.order-"+id || string(m.Data) != want {
				t.Errorf("mail %s %s, want %s", m.Subject, m.Data, want)
			}
		}
	}
	for sub, want := range map[*nats.Subscription]string{undone: `{"amount":42,"order":"order-2"}`, released: `{"reservation":"r1"}`} {
		m, err := sub.NextMsg(patience)
		s.must(err)
		if string(m.Data) != want {
			t.Errorf("%s %s, want %s", m.Subject, m.Data, want)
		}
	}
}

// One region does not answer, and the report goes on without it.
func TestReport(t *testing.T) {
	t.Parallel()
	s := dev(t, "report")
	s.publish("reports.7.wanted", `{"month": "2026-11", "regions": ["north", "south", "west"]}`)
	s.ends("report-7", "done", `{"missing":"1 of 3 items failed, the first is item 2: the west is closed","sum":120}`)
}
