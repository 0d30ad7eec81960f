package natsio_test

import (
	"log/slog"
	"testing"

	"github.com/pointsman/pointsman/internal/natsio"
	"github.com/pointsman/pointsman/internal/natstest"
)

func TestDial(t *testing.T) {
	t.Parallel()
	s, quiet := natstest.Start(t), slog.New(slog.DiscardHandler)
	nc, err := natsio.Dial(natsio.Config{URL: s.URL, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if !nc.IsConnected() {
		t.Error("not connected")
	}
	s.Down(t)
	defer s.Up(t)
	if nc, err := natsio.Dial(natsio.Config{URL: s.URL, Logger: quiet}); err == nil {
		nc.Close()
		t.Error("no error without a server")
	}
	if _, err := natsio.Dial(natsio.Config{URL: s.URL, Creds: "nothing.creds", Logger: quiet}); err == nil {
		t.Error("no error without the credentials")
	}
}
