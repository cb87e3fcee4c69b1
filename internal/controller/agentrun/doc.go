// Package agentrun is the controller of AgentRun objects. It gives a run one pod at a time, replaces the pod when it is
// lost, parks and suspends the run, and says in the run's status what happened.
//
// A pass reads as observe (facts) → decide (pure) → enact (every write but the status) → status (pure) → one status
// write. What must be true between passes is in the run's status alone; the controller remembers nothing.
//
// # Epochs
//
// A run has at most one live pod. The pods are numbered by epochs, and the order of writes makes it so:
//
//  1. One status write sets epoch and podName = <run>-<epoch>, and empties podUID.
//  2. The pod of that name is created; its name is free only if no pod of the epoch exists, so a repeated creation finds the
//     first one and adopts it if the run owns it.
//  3. A status write sets podUID.
//  4. When the pod has ended, a status write records how, in epochs.
//  5. The pod's finalizer is removed; it kept the pod until that record existed.
//  6. When the run may go on: 1, with the next epoch.
//
// A pod that was deleted but whose end nobody saw holds back step 4 until its node reports, is gone or is marked out of
// service. Decisions that a stale cache could falsify (to create a pod, to call a pod gone, to say that no final report
// came) are made on live reads, and every status write carries the resourceVersion that it was computed from.
//
// The package may import api, the pure leaves of internal/runtime and controller-runtime.
package agentrun
