package subjects

// Headers of pointsman.
const (
	HeaderCorrelationKey = "Pointsman-Correlation-Key" // built-in route: the key of the instance
	HeaderInstanceID     = "Pointsman-Instance-Id"     // built-in route: the id of the instance
	HeaderProject        = "Pointsman-Project"         // requests and built-in route: the project

	HeaderAtomic         = "Pointsman-Atomic" // requests: of an array, all or nothing
	HeaderIdempotencyKey = "Idempotency-Key"  // requests: the dedup key

	HeaderReason        = "Pointsman-Reason"          // dead letter: why
	HeaderStream        = "Pointsman-Stream"          // dead letter: where the message stood
	HeaderSeq           = "Pointsman-Seq"             // dead letter: its sequence there
	HeaderSubject       = "Pointsman-Subject"         // dead letter: its subject
	HeaderDeliveries    = "Pointsman-Deliveries"      // dead letter: how often it was delivered
	HeaderOriginalMsgID = "Pointsman-Original-Msg-Id" // dead letter: its Nats-Msg-Id
	HeaderOrigin        = "Pointsman-Origin"          // dead letter: where the message stood first: "<stream> <created, unix ns> <sequence>"
	HeaderTime          = "Pointsman-Time"            // dead letter: when its stream stored the message, RFC 3339
	HeaderCut           = "Pointsman-Cut"             // dead letter: what had to be left out of it: "headers", "body", or both
	HeaderDedupKey      = "Pointsman-Dedup-Key"       // dead letter of a step's signal: its dedup key
	HeaderEventKey      = "Pointsman-Event-Key"       // dead letter of an event: the key of the trigger it was for
)

// EventEffect is the subject of the dead letter of an event that a step sent.
const EventEffect = "event"

// What the reason of a dead letter begins with that tools tell from others.
const (
	ReasonNoTarget = "no_target: "
	ReasonConflict = "conflict: "
)

// Headers of NATS.
const (
	HeaderMsgID        = "Nats-Msg-Id"
	HeaderStreamSource = "Nats-Stream-Source" // set by the server on a sourced or mirrored message

	HeaderServiceError     = "Nats-Service-Error" // set by a micro service on an error reply
	HeaderServiceErrorCode = "Nats-Service-Error-Code"
)

// Headers of CloudEvents 1.0 in binary mode, as its NATS binding spells them.
const (
	HeaderCEID          = "ce-id"
	HeaderCESource      = "ce-source"
	HeaderCEType        = "ce-type"
	HeaderCESpecVersion = "ce-specversion"
	HeaderCETime        = "ce-time"
	HeaderCESubject     = "ce-subject"
	HeaderContentType   = "content-type" // structured mode, and the type of the data in binary mode
)

// Headers of W3C Trace Context.
const (
	HeaderTraceparent = "traceparent"
	HeaderTracestate  = "tracestate"
)
