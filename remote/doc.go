// Package remote has machines whose steps are answered by services over NATS request/reply, in any language.
//
//	machine, err := remote.Machine(remote.Config{Conn: nc, Subjects: space, Name: "order", Start: "begin"})
//	worker, err := engine.NewWorker(client, engine.WorkerConfig{Machines: []*engine.Machine{machine}})
//
// Each execution of a step is one request to <prefix>.step.<machine>.<step>, and whoever subscribes to it answers. What is sent and
// what may be answered is in docs/remote-steps.md. As many requests are under way as the worker's queues have slots.
//
// An answer is read strictly: a field that is unknown, of the wrong type or of another outcome is an error of the step, as is an
// answer that does not come. Errors follow the machine's retry policy, so a service that is mended in time goes on where it stood. Nothing
// of a bad answer is used. While this program itself is cut off from NATS, steps wait and no attempt is counted.
package remote
