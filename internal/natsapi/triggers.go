package natsapi

import "github.com/pointsman/pointsman/internal/api"

// Verbs of requests on triggers.
const (
	VerbSend           = "send"
	VerbTriggers       = "triggers"
	VerbTrigger        = "triggers-get"
	VerbTriggersCreate = "triggers-create"
	VerbTriggersWait   = "triggers-wait"
	VerbTriggersCancel = "triggers-cancel"
	VerbTriggersPrefix = "triggers-send-prefix"
	VerbTriggersStats  = "triggers-stats"
	VerbTriggersPurge  = "triggers-purge"
)

// long verbs may take [api.MaxWait]: they do their work in many transactions.
var long = map[string]bool{VerbTriggersPrefix: true, VerbTriggersPurge: true}

func triggerOperations(a *api.API) map[string]operation {
	return map[string]operation{
		VerbSend:           of(a.SendEvent),
		VerbTriggers:       of(a.Triggers),
		VerbTrigger:        of(a.Trigger),
		VerbTriggersCreate: of(a.CreateTrigger),
		VerbTriggersWait:   of(a.WaitForEvent),
		VerbTriggersCancel: of(a.CancelTrigger),
		VerbTriggersPrefix: of(a.SendEventPrefix),
		VerbTriggersStats:  of(a.TriggerStats),
		VerbTriggersPurge:  of(a.PurgeTriggers),
	}
}
