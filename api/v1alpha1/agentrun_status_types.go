package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outcome is how a finished run came out.
// +kubebuilder:validation:Enum=Produced;Unknown;Failed
type Outcome string

const (
	// OutcomeProduced is a natural end with evidence that the work was done.
	OutcomeProduced Outcome = "Produced"
	// OutcomeUnknown is a natural end without such evidence.
	OutcomeUnknown Outcome = "Unknown"
	// OutcomeFailed is every other end.
	OutcomeFailed Outcome = "Failed"
)

// AgentRunStatus is what is known about a run. Everything but runner is written by the agentrun controller.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.epoch) || (has(self.epoch) && self.epoch >= oldSelf.epoch)",message="epoch never decreases",fieldPath=".epoch"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.podName) || (has(self.podName) && (self.podName == oldSelf.podName || self.epoch > oldSelf.epoch))",message="podName changes only with a new epoch",fieldPath=".podName"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.conditions) || !oldSelf.conditions.exists(c, c.type == 'Succeeded' && c.status != 'Unknown') || (has(self.conditions) && self.conditions.exists(c, c.type == 'Succeeded' && oldSelf.conditions.exists(o, o.type == 'Succeeded' && o.status == c.status && o.reason == c.reason)))",message="condition Succeeded is final once it is True or False",fieldPath=".conditions"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.conditions) || !oldSelf.conditions.exists(c, c.type == 'Finished' && c.status == 'True') || (has(self.conditions) && self.conditions.exists(c, c.type == 'Finished' && c.status == 'True'))",message="condition Finished is final once it is True",fieldPath=".conditions"
type AgentRunStatus struct {
	// conditions are the contract of the run: Succeeded, Finished, Admitted, PodReady, Parked, Suspended, LedgerHealthy,
	// RouteAvailable and Stalled, all of them from the first reconciliation on.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that this status describes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// epoch numbers the run's pods from 1. It is written before the pod of that number is created.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Epoch int64 `json:"epoch,omitempty"`

	// podName is the name of the epoch's pod.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	PodName string `json:"podName,omitempty"`

	// podUID is the UID of the epoch's pod; unset until it was created.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	PodUID string `json:"podUID,omitempty"`

	// podStartTime is when the epoch's pod was created.
	// +optional
	PodStartTime *metav1.Time `json:"podStartTime,omitempty"`

	// nextEpochTime is the earliest time of the next pod, while there is none.
	// +optional
	NextEpochTime *metav1.Time `json:"nextEpochTime,omitempty"`

	// startTime is when the run's first pod was created.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the run finished.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// activeSeconds is the time that earlier pods of the run lived; the pod of podStartTime is not in it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ActiveSeconds *int64 `json:"activeSeconds,omitempty"`

	// outcome is how the run came out; unset until it finished.
	// +optional
	Outcome Outcome `json:"outcome,omitempty"`

	// result is the run's answer; unset until it finished with one.
	// +optional
	Result *Result `json:"result,omitempty"`

	// usage is the total of all models; set when the run finished.
	// +optional
	Usage *Usage `json:"usage,omitempty"`

	// legs are the usage of each leg; set when the run finished.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Legs []LegUsage `json:"legs,omitempty"`

	// epochs are the run's last pods that ended, at most ten, the oldest first.
	// +optional
	// +listType=map
	// +listMapKey=epoch
	// +kubebuilder:validation:MaxItems=10
	Epochs []EpochRecord `json:"epochs,omitempty"`

	// restarts is how many pods were replaced because the run itself failed; see spec.restartLimit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Restarts *int32 `json:"restarts,omitempty"`

	// disruptions is how many pods were replaced because the cluster took them away; see spec.disruptionLimit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Disruptions *int32 `json:"disruptions,omitempty"`

	// resumes is how many pods continued what an earlier pod of the run had begun.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Resumes *int32 `json:"resumes,omitempty"`

	// replayedTurns is how many committed turns were taken from the ledger instead of being asked for again.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReplayedTurns *int32 `json:"replayedTurns,omitempty"`

	// runner is applied by the run's own pod alone.
	// +optional
	Runner *RunnerStatus `json:"runner,omitempty"`
}

// Result is a run's answer. The whole text is on the run's volume.
type Result struct {
	// text is the beginning of the answer, at most 4 KiB.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Text string `json:"text,omitempty"`

	// size is the size of the whole answer in bytes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Size *int64 `json:"size,omitempty"`

	// sha256 is the SHA-256 of the whole answer, in hex.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	SHA256 string `json:"sha256,omitempty"`

	// path is where the whole answer is, relative to the run's directory on the ledger's volume.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Path string `json:"path,omitempty"`
}

// Usage counts tokens as providers bill them, discarded answers included, and what they cost.
type Usage struct {
	// requests is the number of requests, failed ones included.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Requests *int64 `json:"requests,omitempty"`

	// retries is how many of the requests repeated another.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Retries *int64 `json:"retries,omitempty"`

	// inputTokens are all prompt tokens, cached ones included.
	// +optional
	// +kubebuilder:validation:Minimum=0
	InputTokens *int64 `json:"inputTokens,omitempty"`

	// cachedInputTokens are the prompt tokens read from a provider's cache.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CachedInputTokens *int64 `json:"cachedInputTokens,omitempty"`

	// cacheWriteTokens are the prompt tokens written to a provider's cache.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CacheWriteTokens *int64 `json:"cacheWriteTokens,omitempty"`

	// outputTokens are all generated tokens, reasoning included.
	// +optional
	// +kubebuilder:validation:Minimum=0
	OutputTokens *int64 `json:"outputTokens,omitempty"`

	// reasoningTokens are the generated tokens of hidden reasoning.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReasoningTokens *int64 `json:"reasoningTokens,omitempty"`

	// totalTokens is inputTokens + outputTokens.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TotalTokens *int64 `json:"totalTokens,omitempty"`

	// costMicroUSD is the cost in micro-USD, of the legs that have a price.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CostMicroUSD *int64 `json:"costMicroUSD,omitempty"`

	// cost is costMicroUSD for people, in USD, for example "0.0125".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Cost string `json:"cost,omitempty"`
}

// LegUsage is the usage of one leg.
type LegUsage struct {
	// name is the leg's name in the ladder.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// usage is what the leg was used for.
	// +optional
	Usage *Usage `json:"usage,omitempty"`
}

// EpochEnd is why a pod of a run ended.
// +kubebuilder:validation:Enum=Finished;Parked;Suspended;Cancelled;Interrupted;Fenced;Failed;Disrupted;NeverStarted;Lost
type EpochEnd string

const (
	// EpochFinished ended because the run finished.
	EpochFinished EpochEnd = "Finished"
	// EpochParked ended because no route was available.
	EpochParked EpochEnd = "Parked"
	// EpochSuspended ended because the run was suspended.
	EpochSuspended EpochEnd = "Suspended"
	// EpochCancelled ended because the run was cancelled.
	EpochCancelled EpochEnd = "Cancelled"
	// EpochInterrupted ended in order, at a record boundary, to be continued: it counts against no limit.
	EpochInterrupted EpochEnd = "Interrupted"
	// EpochFenced found that another pod has the ledger.
	EpochFenced EpochEnd = "Fenced"
	// EpochFailed ended by the run's own fault: a crash, or more memory or disk than it may use.
	EpochFailed EpochEnd = "Failed"
	// EpochDisrupted was taken away by the cluster: eviction, preemption, node shutdown, deletion.
	EpochDisrupted EpochEnd = "Disrupted"
	// EpochNeverStarted had no runner within the startup deadline.
	EpochNeverStarted EpochEnd = "NeverStarted"
	// EpochLost disappeared without a trace.
	EpochLost EpochEnd = "Lost"
)

// EpochRecord is how one pod of a run ended.
type EpochRecord struct {
	// epoch is the pod's number.
	// +required
	// +kubebuilder:validation:Minimum=1
	Epoch int64 `json:"epoch,omitempty"`

	// podName is the pod's name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	PodName string `json:"podName,omitempty"`

	// podUID is the pod's UID.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	PodUID string `json:"podUID,omitempty"`

	// nodeName is the pod's node.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// startTime is when the pod was created.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// endTime is when the end of the pod was recorded.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`

	// end is why the pod ended.
	// +required
	End EpochEnd `json:"end,omitempty"`

	// exitCode is the runner's exit code, if it had one.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`

	// turn is the run's turn when the pod ended, as last reported.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Turn *int32 `json:"turn,omitempty"`

	// ledgerSeq is the ledger's last record when the pod ended, as last reported.
	// +optional
	// +kubebuilder:validation:Minimum=0
	LedgerSeq *int64 `json:"ledgerSeq,omitempty"`

	// ladderGeneration is the generation of the ladder when the pod ended.
	// +optional
	// +kubebuilder:validation:Minimum=1
	LadderGeneration int64 `json:"ladderGeneration,omitempty"`

	// message says for people what happened.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}
