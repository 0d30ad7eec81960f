package store

import (
	"strings"

	"github.com/pointsman/pointsman/internal/flaw"
)

// flawed takes protections out of the statements. In builds that are not for that it returns them as they are.
func flawed(t texts) texts {
	if flaw.Is(flaw.NoFence) {
		unfenced := strings.NewReplacer(
			" and i.rev = o.rev and i.live and o.token in (select token from l)", "",
			" and (select count(*) from l) > 0", "",
			" and not (o.ahead and not i.paused) as runs, o.ahead and not i.paused as ahead", " as runs, false as ahead") // it goes on from where it is not
		t.commit, t.commitOutputs = unfenced.Replace(t.commit), unfenced.Replace(t.commitOutputs)
	}
	return t
}
