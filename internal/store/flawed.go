package store

import (
	"strings"

	"github.com/pointsman/pointsman/internal/flaw"
)

// flawed takes protections out of the statements. In builds that are not for that it returns them as they are.
func flawed(t texts) texts {
	if flaw.Is(flaw.NoFence) {
		for _, sql := range []*string{&t.commit, &t.commitOutputs, &t.commitNotify} {
			for protection, without := range map[string]string{
				" and i.rev = o.rev and " + alive + " and (o.token in (select token from l)) is true": "",
				" and (select count(*) from l) > 0":                                                   "",
				" and not (o.ahead and not i.paused) as runs, o.ahead and not i.paused as ahead":      " as runs, false as ahead", // it goes on from where it is not
			} {
				if !strings.Contains(*sql, protection) {
					panic("the commit has no protection that reads" + protection)
				}
				*sql = strings.ReplaceAll(*sql, protection, without)
			}
		}
	}
	return t
}
