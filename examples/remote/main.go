// Command remote answers the steps of the machine "parcel" of pointsman.yaml: a parcel is scanned on its way, until at the door. All it
// needs is a NATS client; docs/remote-steps.md is the whole of the protocol. Run two of them, and they share the work.
package main

import (
	"cmp"
	"encoding/json"
	"log"
	"os"

	"github.com/nats-io/nats.go"
)

type request struct {
	Step     string
	Awaited  []struct{ Payload struct{ Place string } }
	TimedOut bool `json:"timed_out"`
}

type reply map[string]any

func answer(r request) reply {
	wait := reply{"outcome": "await", "signals": []string{"scan"}, "consume": true, "timeout_ms": 48 * 3600 * 1000, "step": "scanned"}
	if r.TimedOut {
		return reply{"outcome": "stop", "reason": "no scan for two days"}
	}
	for _, scan := range r.Awaited {
		if scan.Payload.Place == "door" {
			return reply{"outcome": "done", "result": reply{"delivered": true}}
		}
		wait["state"] = reply{"at": scan.Payload.Place}
	}
	return wait
}

func serve(nc *nats.Conn) error {
	_, err := nc.QueueSubscribe("pointsman.step.parcel.*", "parcel", func(m *nats.Msg) {
		var r request
		answered := reply{}
		if err := json.Unmarshal(m.Data, &r); err != nil {
			answered["error"] = err.Error()
		} else {
			answered = answer(r)
		}
		body, _ := json.Marshal(answered)
		_ = m.Respond(body)
	})
	return err
}

func main() {
	nc, err := nats.Connect(cmp.Or(os.Getenv("POINTSMAN_NATS_URL"), nats.DefaultURL), nats.MaxReconnects(-1))
	if err == nil {
		err = serve(nc)
	}
	if err != nil {
		log.Fatal(err)
	}
	select {}
}
