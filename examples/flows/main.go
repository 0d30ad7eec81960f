// Flows are the services that the flows of the directories beside this file call, over NATS. What happens when is in their pointsman.yaml;
// here is only what each service does.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/nats-io/nats.go"
)

type object = map[string]any

// services answer what they are asked, or with an error. They may be asked twice: the header Idempotency-Key says that it is the same.
var services = map[string]func(data json.RawMessage) (any, error){
	"documents.extract": func(json.RawMessage) (any, error) { return object{"document": "passport"}, nil },
	"sanctions.screen":  func(json.RawMessage) (any, error) { return object{"hits": 0}, nil },
	"accounts.open": func(data json.RawMessage) (any, error) {
		var q struct{ User string }
		err := json.Unmarshal(data, &q)
		return object{"account": "account-" + q.User}, err
	},

	"stock.reserve": func(json.RawMessage) (any, error) { return object{"reservation": "r1"}, nil },
	"stock.release": func(json.RawMessage) (any, error) { return object{"released": true}, nil },
	"shipping.ship": func(data json.RawMessage) (any, error) {
		var q struct{ Items []string }
		if err := json.Unmarshal(data, &q); err != nil {
			return nil, err
		}
		if slices.Contains(q.Items, "anvil") {
			return nil, errors.New("too heavy")
		}
		return object{"parcel": "p1"}, nil
	},
	"payments.refund": func(json.RawMessage) (any, error) { return object{"refunded": true}, nil },

	"sales.north": func(json.RawMessage) (any, error) { return 100, nil },
	"sales.south": func(json.RawMessage) (any, error) { return 20, nil },
	"sales.west":  func(json.RawMessage) (any, error) { return nil, errors.New("the west is closed") },
	"sales.sum": func(data json.RawMessage) (any, error) {
		var all []*int
		if err := json.Unmarshal(data, &all); err != nil {
			return nil, err
		}
		sum := 0
		for _, n := range all {
			if n != nil {
				sum += *n
			}
		}
		return sum, nil
	},
}

// serve answers until the connection is closed. Of several copies one answers.
func serve(nc *nats.Conn) error {
	for subject, service := range services {
		_, err := nc.QueueSubscribe(subject, "examples", func(m *nats.Msg) {
			answer, err := service(m.Data)
			if err != nil {
				answer = object{"error": err.Error()}
			}
			body, err := json.Marshal(answer)
			if err == nil {
				err = m.Respond(body)
			}
			if err != nil {
				slog.Error("answer", "subject", m.Subject, "error", err)
			}
		})
		if err != nil {
			return fmt.Errorf("subscribe to %s: %w", subject, err)
		}
	}
	return nc.Flush()
}

func run(ctx context.Context) error {
	url := os.Getenv("POINTSMAN_NATS_URL")
	if url == "" {
		url = nats.DefaultURL
	}
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := serve(nc); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("flows", "error", err)
		os.Exit(1)
	}
}
