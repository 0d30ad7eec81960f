// What a figure means: the state of a thing as a badge has it.

const lateAfter = 60; // seconds that something may be ready

export function routeState(r) {
	if (r.trouble) return ['trouble'];
	if (r.paused) return ['paused', 'paused by ' + r.paused_by.join(', ')];
	if (r.throttle_reason) return [r.throttle_reason.split(':')[0]];
	return ['running'];
}

export function queueState(q) {
	if (q.depth > 0 && q.workers === 0) return ['unserved'];
	if (q.depth > 0 && q.oldest_seconds > lateAfter) return ['late'];
	return q.workers === 0 ? ['idle'] : ['ok', 'served'];
}

export const workerState = (w) => (w.alive ? ['alive'] : ['gone']);
