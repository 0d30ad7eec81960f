package store

import "strings"

// texts are the statements as this store sends them. A field of its own for each lets a test take one protection out and see
// what it protected from.
type texts struct {
	deliverKey, deliverKeySlow, deliverID, deliverIDSlow, lockScopes, lockKeyTargets, lockIDTargets, recheck string
	keysOf                                                                                                   string
	start, nobodyKey, nobodyID, hold                                                                         string
	pick, pickKeyed, longInbox, inboxAhead, extend                                                           string
	commit, commitOutputs, clearEnded, dropTimers, resolve, deadLetters                                      string
	release, promote, guard, giveBack                                                                        string
	sweepTimers, anyExpired, sweepLeases, expireHeld, nextDue                                                string
	cancel, retry, pause, resume, register                                                                   string
	retire, letGo, note, forget, nextRetired                                                                 string
	getID, getKey, standings, queueDepths, seen, gone, unserved                                              string
	listRecent, listKey, listPrefix, listEnded, listExecuting, instancesByID                                 string
	inbox, history, consumedBy, events, held                                                                 string
	relayHere, holdShards, releaseShards, relayGone                                                          string
	outbox, published, postpone, outboxDepth                                                                 string
	lanes                                                                                                    string
	checkpoint, saveCheckpoint, countFailures, forgetFailures                                                string
	extendRoute, knowRoute, takeRoute, releaseRoute, fence                                                   string
	fates, lettersWaiting, vanished, traces, noteDropped, forgetDropped                                      string
	rewind, forgetFailuresAfter, routeStates, pauseRoute                                                     string
	hasty, tablesLocked                                                                                      string
	apiKey, insertKey, revokeKey, listKeys, anyKey, listWorkers, listQueues, countLive, countEnded           string
	standStill, age, readyLanes                                                                              string
	wakeParents, tellParents, tellMissed, tellUnstarted, children, checkPath, passing                        string
	judged, keepVerdict, forgetVerdicts, updateTaken, validated, setEvent                                    string

	lockFamilies, stillMatching, addJob, sameJob, job, listJobs, cancelJob, nextJob, takeJob, saveJob, postponeJob, retireJobs string

	commitNotify                                         string
	addDeliveries, claimDeliveries, nextDelivery         string
	recordDeliveries, giveUpDeliveries, retireDeliveries string
	listDeliveries, deliveryByID, retryDeliveries        string

	trigger, triggersByID, triggerStandings, listTriggers, listTriggersOf, triggerCounts        string
	lookNew, createTriggers, carryMissed, makeQuotas, lockQuotas, countTriggers, saveQuotas     string
	endTriggers, sweepTriggers, triggersDue, tell, endedWith, revive                            string
	lookEvents, noteEvents, holdEvents, adoptEvents, expireHeldEvents, resolveEvents, lockGroup string
	triggersWithPrefix, purgeTriggers, countPurge, triggerProjects                              string

	publish string
	content string
}

func newTexts(q func(string) string) texts {
	nobodyKey := strings.NewReplacer("{type}", "text", "{where}", "i.project = $1 and i.correlation_key = inp.target and not i.live", "{scope}", "inp.scope", "{key}", "inp.target")
	nobodyID := strings.NewReplacer("{type}", "uuid", "{where}", "i.id = inp.target and (i.project = $1 or $1 = '') and i.status is not null", "{scope}", departedScope, "{key}", "null")
	return texts{
		deliverKey: q(targetKey.Replace(deliverFast.Replace(deliverText))), deliverKeySlow: q(targetKey.Replace(deliverSlow.Replace(deliverText))),
		deliverID: q(targetID.Replace(deliverFast.Replace(deliverText))), deliverIDSlow: q(anyWithID.Replace(deliverSlow.Replace(deliverText))),
		lockScopes: q(lockScopesText), lockKeyTargets: q(targetKey.Replace(lockTargetsText)), lockIDTargets: q(anyWithID.Replace(lockTargetsText)),
		recheck: q(recheckText), keysOf: q(keysOfText),
		start: q(startText), nobodyKey: q(nobodyKey.Replace(nobodyText)), nobodyID: q(nobodyID.Replace(nobodyText)), hold: q(holdText),
		pick: q(pickPlain.Replace(pickText)), pickKeyed: q(pickKeyed.Replace(pickText)), longInbox: q(longInboxText), inboxAhead: q(inboxAheadText), extend: q(extendText),
		commit: q(commitOf("", "")), commitOutputs: q(commitOf(commitOutputs, "")),
		clearEnded: q(clearEndedText), dropTimers: q(dropTimersText), resolve: q(resolveText), deadLetters: q(deadLettersText),
		release: q(releaseText), promote: q(promoteText), guard: q(guardText), giveBack: q(giveBackText),
		sweepTimers: q(sweepTimersText), anyExpired: q(anyExpiredText), sweepLeases: q(sweepLeasesText), expireHeld: q(expireHeldText), nextDue: q(nextDueText),
		cancel: q(cancelOutputs.Replace(cancelText)),
		retry:  q(retryText), pause: q(strings.Replace(pauseText, "{noted}", noted("pause"), 1)), resume: q(strings.Replace(resumeText, "{noted}", noted("resume"), 1)),
		register: q(registerText), content: q(contentText),
		retire: q(retireText), letGo: q(letGoText), note: q(noteText), forget: q(forgetText), nextRetired: q(nextRetiredText),
		getID: q(getIDText), getKey: q(getKeyText), standings: q(standingsText), queueDepths: q(queueDepthsText), seen: q(seenText), gone: q(goneText), unserved: q(unservedText),
		listRecent: q(listBounds.Replace(listRecentText)), listKey: q(listOf("key")), listPrefix: q(listOf("prefix")), listEnded: q(listOf("ended")), listExecuting: q(listOf("executing")),
		instancesByID: q(instancesByIDText), inbox: q(inboxText), history: q(historyText), consumedBy: q(consumedByText), events: q(eventsText), held: q(heldText),
		relayHere: q(relayHereText), holdShards: q(holdShardsText), releaseShards: q(releaseShardsText), relayGone: q(relayGoneText),
		outbox: q(outboxText), published: q(publishedText), postpone: q(postponeText), outboxDepth: q(outboxDepthText),
		lanes:      q(lanesText),
		checkpoint: q(checkpointText), saveCheckpoint: q(saveCheckpointText), countFailures: q(countFailuresText), forgetFailures: q(forgetFailuresText),
		extendRoute: q(extendRouteText), knowRoute: q(knowRouteText), takeRoute: q(takeRouteText), releaseRoute: q(releaseRouteText), fence: q(fenceText),
		fates: q(fatesText), lettersWaiting: q(lettersWaitingText), vanished: q(vanishedText), traces: q(tracesText), noteDropped: q(noteDroppedText), forgetDropped: q(forgetDroppedText),
		rewind: q(rewindText), forgetFailuresAfter: q(forgetFailuresAfterText), routeStates: q(routeStatesText), pauseRoute: q(pauseRouteText),
		hasty: q(hastyText), tablesLocked: q(tablesLockedText),
		apiKey: q(apiKeyText), insertKey: q(insertKeyText), revokeKey: q(revokeKeyText), listKeys: q(listKeysText), anyKey: q(anyKeyText),
		listWorkers: q(listWorkersText), listQueues: q(listQueuesText), countLive: q(countLiveText), countEnded: q(countEndedText),
		standStill: q(standStillText), age: q(ageText), readyLanes: q(readyLanesText),

		trigger: q(triggerText), triggersByID: q(triggersByIDText), triggerStandings: q(triggerStandingsText), listTriggers: q(listTriggersText),
		listTriggersOf: q(listTriggersOfText), triggerCounts: q(triggerCountsText),
		lookNew: q(lookNewText), createTriggers: q(createTriggersText), carryMissed: q(carryMissedText), makeQuotas: q(makeQuotasText), lockQuotas: q(lockQuotasText),
		countTriggers: q(countTriggersText), saveQuotas: q(saveQuotasText),
		endTriggers: q(endNow.Replace(endTriggersText)), sweepTriggers: q(endSwept.Replace(endTriggersText)), triggersDue: q(triggersDueText), tell: q(toldText),
		endedWith: q(endedWithText), revive: q(reviveText),
		lookEvents: q(lookEventsText), noteEvents: q(noteEventsText), holdEvents: q(holdEventsText), adoptEvents: q(adoptEventsText), expireHeldEvents: q(expireHeldEventsText),
		resolveEvents: q(resolveEventsText), lockGroup: q(lockGroupText),
		triggersWithPrefix: q(triggersWithPrefixText), purgeTriggers: q(purgeTriggersText), countPurge: q(countPurgeText), triggerProjects: q(triggerProjectsText),
		wakeParents: q(wakeParentsText), tellParents: q(tellParentsText), tellMissed: q(tellMissedText), tellUnstarted: q(tellUnstartedText),
		children: q(childrenText), checkPath: q(checkPathText), passing: q(passingText),
		judged: q(judgedText), keepVerdict: q(keepVerdictText), forgetVerdicts: q(forgetVerdictsText), updateTaken: q(updateTakenText), validated: q(validatedText), setEvent: q(setEventText),

		lockFamilies: q(lockFamiliesText), stillMatching: q(stillMatchingText), addJob: q(addJobText), sameJob: q(sameJobText), job: q(jobText), listJobs: q(listJobsText),
		cancelJob: q(cancelJobText), nextJob: q(nextJobText), takeJob: q(takeJobText), saveJob: q(saveJobText), postponeJob: q(postponeJobText), retireJobs: q(retireJobsText),

		commitNotify: q(commitOf(commitOutputs+notifyEnded, notifiedColumns)), addDeliveries: q(addDeliveriesText),
		claimDeliveries: q(claimDeliveriesText), nextDelivery: q(nextDeliveryText),
		recordDeliveries: q(recordDeliveriesText), giveUpDeliveries: q(giveUpDeliveriesText), retireDeliveries: q(retireDeliveriesText),
		listDeliveries: q(listDeliveriesText), deliveryByID: q(deliveryByIDText), retryDeliveries: q(retryDeliveriesText),

		publish: q(publishText),
	}
}
