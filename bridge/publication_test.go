package bridge

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/subjects"
)

// An end is told even where its result is too large for a message.
func TestOutcomeOfALargeResult(t *testing.T) {
	t.Parallel()
	const maxPayload = 4096
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]bool{maxPayload / 2: true, maxPayload - 200: false, 10 * maxPayload: false} {
		body := `{"status": "done", "instance_id": "i", "result": "` + strings.Repeat("x", size) + `"}`
		for _, kind := range []engine.PublicationKind{engine.PublishOutcome, engine.PublishReply} {
			msg := publication(space, engine.Publication{Kind: kind, Project: "p", Subject: "m.done", MsgID: "i:3", InstanceID: uuid.New(), Body: []byte(body)}, maxPayload)
			var outcome struct{ Status, Result *string }
			if err := json.Unmarshal(msg.Data, &outcome); err != nil {
				t.Fatal(err)
			}
			if got := outcome.Result != nil; got != want || outcome.Status == nil || *outcome.Status != "done" {
				t.Errorf("%s of %d bytes: %s", kind, size, msg.Data[:100])
			}
			if reason := msg.Header.Get(subjects.HeaderReason); (reason == "") != want {
				t.Errorf("%s of %d bytes: reason %q", kind, size, reason)
			}
			if n := headerSize(msg.Header) + len(msg.Data); n > maxPayload {
				t.Errorf("%s of %d bytes: the message has %d", kind, size, n)
			}
		}
	}
}
