package bridge

import (
	"time"

	"github.com/pointsman/pointsman/internal/flaw"
)

// flawed does to a batch what it must never be done to. In builds that are not for that it does nothing.
func flawed(batch []delivery) {
	for i := range batch {
		if flaw.Is(flaw.DropSignal) && batch[i].sequence%20 == 0 {
			batch[i].intakes, batch[i].filtered = nil, true
		}
		if flaw.Is(flaw.AckFirst) {
			_ = batch[i].Ack()
		}
	}
	if flaw.Is(flaw.AckFirst) {
		time.Sleep(200 * time.Millisecond) // a kill finds it here
	}
}
