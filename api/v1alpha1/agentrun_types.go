package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AgentRunSpec declares one run: what to do, with which models, tools and limits.
//
// +kubebuilder:validation:XValidation:rule="has(self.task) != has(self.taskFrom)",message="task: exactly one of task and taskFrom must be set",fieldPath=".task"
// +kubebuilder:validation:XValidation:rule="!(has(self.system) && has(self.systemFrom))",message="system: at most one of system and systemFrom can be set",fieldPath=".system"
// +kubebuilder:validation:XValidation:rule="self.ladderRef == oldSelf.ladderRef",message="ladderRef is immutable",fieldPath=".ladderRef"
// +kubebuilder:validation:XValidation:rule="has(self.task) == has(oldSelf.task) && (!has(self.task) || self.task == oldSelf.task)",message="task is immutable",fieldPath=".task"
// +kubebuilder:validation:XValidation:rule="has(self.taskFrom) == has(oldSelf.taskFrom) && (!has(self.taskFrom) || self.taskFrom == oldSelf.taskFrom)",message="taskFrom is immutable",fieldPath=".taskFrom"
// +kubebuilder:validation:XValidation:rule="has(self.system) == has(oldSelf.system) && (!has(self.system) || self.system == oldSelf.system)",message="system is immutable",fieldPath=".system"
// +kubebuilder:validation:XValidation:rule="has(self.systemFrom) == has(oldSelf.systemFrom) && (!has(self.systemFrom) || self.systemFrom == oldSelf.systemFrom)",message="systemFrom is immutable",fieldPath=".systemFrom"
// +kubebuilder:validation:XValidation:rule="has(self.routing) == has(oldSelf.routing) && (!has(self.routing) || self.routing == oldSelf.routing)",message="routing is immutable",fieldPath=".routing"
// +kubebuilder:validation:XValidation:rule="has(self.tools) == has(oldSelf.tools) && (!has(self.tools) || self.tools == oldSelf.tools)",message="tools is immutable",fieldPath=".tools"
// +kubebuilder:validation:XValidation:rule="has(self.ledger) == has(oldSelf.ledger) && (!has(self.ledger) || self.ledger == oldSelf.ledger)",message="ledger is immutable",fieldPath=".ledger"
// +kubebuilder:validation:XValidation:rule="(has(self.workspace) && has(self.workspace.image)) == (has(oldSelf.workspace) && has(oldSelf.workspace.image)) && (!has(self.workspace) || !has(self.workspace.image) || self.workspace.image == oldSelf.workspace.image)",message="workspace.image is immutable",fieldPath=".workspace"
// +kubebuilder:validation:XValidation:rule="(has(self.workspace) && has(self.workspace.volume)) == (has(oldSelf.workspace) && has(oldSelf.workspace.volume)) && (!has(self.workspace) || !has(self.workspace.volume) || self.workspace.volume == oldSelf.workspace.volume)",message="workspace.volume is immutable",fieldPath=".workspace"
// +kubebuilder:validation:XValidation:rule="(has(self.workspace) && has(self.workspace.setup)) == (has(oldSelf.workspace) && has(oldSelf.workspace.setup)) && (!has(self.workspace) || !has(self.workspace.setup) || self.workspace.setup == oldSelf.workspace.setup)",message="workspace.setup is immutable",fieldPath=".workspace"
// +kubebuilder:validation:XValidation:rule="self.?limits.?maxTurns.orValue(200) >= oldSelf.?limits.?maxTurns.orValue(200)",message="limits.maxTurns can only be raised",fieldPath=".limits"
// +kubebuilder:validation:XValidation:rule="self.?limits.?maxModelRetries.orValue(100) >= oldSelf.?limits.?maxModelRetries.orValue(100)",message="limits.maxModelRetries can only be raised",fieldPath=".limits"
// +kubebuilder:validation:XValidation:rule="self.?limits.?maxTokens.orValue(9223372036854775807) >= oldSelf.?limits.?maxTokens.orValue(9223372036854775807)",message="limits.maxTokens can only be raised or removed",fieldPath=".limits"
// +kubebuilder:validation:XValidation:rule="self.?limits.?maxCostMicroUSD.orValue(9223372036854775807) >= oldSelf.?limits.?maxCostMicroUSD.orValue(9223372036854775807)",message="limits.maxCostMicroUSD can only be raised or removed",fieldPath=".limits"
// +kubebuilder:validation:XValidation:rule="self.?limits.?activeDeadlineSeconds.orValue(86400) >= oldSelf.?limits.?activeDeadlineSeconds.orValue(86400)",message="limits.activeDeadlineSeconds can only be raised",fieldPath=".limits"
// +kubebuilder:validation:XValidation:rule="self.?limits.?maxParkedSeconds.orValue(604800) >= oldSelf.?limits.?maxParkedSeconds.orValue(604800)",message="limits.maxParkedSeconds can only be raised",fieldPath=".limits"
// +kubebuilder:validation:XValidation:rule="oldSelf.?desiredState.orValue('Running') != 'Cancelled' || self.?desiredState.orValue('Running') == 'Cancelled'",message="desiredState: Cancelled is final; create a new run instead",fieldPath=".desiredState"
type AgentRunSpec struct {
	// ladderRef names the RouteLadder, in the run's namespace, whose models the run may ask. Immutable.
	// +required
	LadderRef LadderReference `json:"ladderRef,omitzero"`

	// task is what the agent is asked to do. Exactly one of task and taskFrom is set. Immutable.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	// +kubebuilder:validation:XValidation:rule="self.matches('\\\\S')",message="task must not be blank"
	Task string `json:"task,omitempty"`

	// taskFrom reads the task from a ConfigMap. The run freezes what it reads when it starts. Immutable.
	// +optional
	TaskFrom *TextSource `json:"taskFrom,omitempty"`

	// system is the system prompt. At most one of system and systemFrom is set. Immutable.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	System string `json:"system,omitempty"`

	// systemFrom reads the system prompt from a ConfigMap. The run freezes what it reads when it starts. Immutable.
	// +optional
	SystemFrom *TextSource `json:"systemFrom,omitempty"`

	// routing narrows which legs of the ladder the run may use. Immutable.
	// +optional
	Routing *Routing `json:"routing,omitempty"`

	// tools are what the model may call. Immutable.
	// +optional
	Tools *Tools `json:"tools,omitempty"`

	// workspace is where tools work. image, volume and setup are immutable; resources apply from the next pod.
	// +optional
	Workspace *Workspace `json:"workspace,omitempty"`

	// ledger is the durable record from which a new pod resumes. Immutable.
	// +optional
	Ledger *Ledger `json:"ledger,omitempty"`

	// limits bound the whole run, over all its pods. They can only be raised.
	// +optional
	Limits *Limits `json:"limits,omitempty"`

	// restartLimit is how many pods may be replaced because the run itself failed: a crash, or more memory or disk than it
	// may use. Defaults to 3.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	RestartLimit *int32 `json:"restartLimit,omitempty"`

	// disruptionLimit is how many pods may be replaced because the cluster took them away: eviction, preemption, node loss,
	// deletion. Defaults to 20.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	DisruptionLimit *int32 `json:"disruptionLimit,omitempty"`

	// startupDeadlineSeconds is how long a pod may take until its runner runs. Defaults to 600.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	StartupDeadlineSeconds int32 `json:"startupDeadlineSeconds,omitempty"`

	// desiredState is what the run should be doing. Defaults to Running.
	// +optional
	DesiredState DesiredState `json:"desiredState,omitempty"`

	// podTemplate adds to the run's pods, from the next pod on.
	// +optional
	PodTemplate *PodTemplate `json:"podTemplate,omitempty"`

	// ttlSecondsAfterFinished deletes the run that long after its end. Unset keeps it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// LadderReference names a RouteLadder of the same namespace.
type LadderReference struct {
	// name is the ladder's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
}

// TextSource is where a text comes from.
type TextSource struct {
	// configMapKeyRef is a key of a ConfigMap in the run's namespace.
	// +required
	ConfigMapKeyRef ConfigMapKeyReference `json:"configMapKeyRef,omitzero"`
}

// ConfigMapKeyReference is a key of a ConfigMap.
type ConfigMapKeyReference struct {
	// name is the name of the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// key is the key in the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key,omitempty"`
}

// Metered says whether a run may use legs that are paid by use.
// +kubebuilder:validation:Enum=Deny;Allow
type Metered string

const (
	// MeteredDeny forbids them.
	MeteredDeny Metered = "Deny"
	// MeteredAllow allows them.
	MeteredAllow Metered = "Allow"
)

// Routing narrows the ladder for one run. A leg that is neither excluded by legs nor allowed by the rest ends the run as
// PolicyConflict before any request is sent: a policy never shortens a chain silently.
type Routing struct {
	// securityClass is the class of the run's data; a leg must be at least of this class. Defaults to Public.
	// +optional
	SecurityClass SecurityClass `json:"securityClass,omitempty"`

	// metered says whether legs that are paid by use are allowed. Defaults to Deny.
	// +optional
	Metered Metered `json:"metered,omitempty"`

	// legs are the names of the legs to use, in the ladder's order whatever the order here. Unset means all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Legs []string `json:"legs,omitempty"`
}

// Tools are what the model may call.
type Tools struct {
	// workspace are the tools that work in the workspace. Unset means all of them.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Workspace []WorkspaceTool `json:"workspace,omitempty"`
}

// WorkspaceToolName is a tool that works in the workspace.
// +kubebuilder:validation:Enum=shell;read;write;edit;grep;glob
type WorkspaceToolName string

// The tools of the workspace. shell exists only if the workspace's image has a shell.
const (
	WorkspaceToolShell WorkspaceToolName = "shell"
	WorkspaceToolRead  WorkspaceToolName = "read"
	WorkspaceToolWrite WorkspaceToolName = "write"
	WorkspaceToolEdit  WorkspaceToolName = "edit"
	WorkspaceToolGrep  WorkspaceToolName = "grep"
	WorkspaceToolGlob  WorkspaceToolName = "glob"
)

// WorkspaceTool allows one tool.
type WorkspaceTool struct {
	// name is the tool's name.
	// +required
	Name WorkspaceToolName `json:"name,omitempty"`

	// timeoutSeconds bounds one call. Defaults to 120.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// LedgerRetention says what happens to a run's volumes when the run is deleted.
// +kubebuilder:validation:Enum=Retain;Delete
type LedgerRetention string

const (
	// LedgerRetentionRetain keeps the claims that Belay made for the run.
	LedgerRetentionRetain LedgerRetention = "Retain"
	// LedgerRetentionDelete deletes them with the run.
	LedgerRetentionDelete LedgerRetention = "Delete"
)

// Ledger says where the run's record is kept.
type Ledger struct {
	// volume is a volume of its own for the ledger; {} asks for one with the defaults. Unset means the workspace's volume.
	// +optional
	Volume *Volume `json:"volume,omitempty"`

	// retention says what happens to the claims that Belay made for the run when the run is deleted. Existing claims that
	// are named by claimName are never deleted. Defaults to Retain.
	// +optional
	Retention LedgerRetention `json:"retention,omitempty"`
}

// Limits bound the whole run.
type Limits struct {
	// maxTurns is the number of model answers. Defaults to 200.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxTurns int32 `json:"maxTurns,omitempty"`

	// maxModelRetries is the number of repeated model requests. Defaults to 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MaxModelRetries *int32 `json:"maxModelRetries,omitempty"`

	// maxTokens is the number of tokens, input and output together. Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxTokens int64 `json:"maxTokens,omitempty"`

	// maxCostMicroUSD is the cost of all requests in micro-USD. Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxCostMicroUSD int64 `json:"maxCostMicroUSD,omitempty"`

	// activeDeadlineSeconds is the time that the run may have a pod, waits included, parked and suspended time not.
	// Defaults to 86,400.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ActiveDeadlineSeconds int32 `json:"activeDeadlineSeconds,omitempty"`

	// maxParkedSeconds is the time that one park may last. Defaults to 604,800, seven days.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxParkedSeconds int32 `json:"maxParkedSeconds,omitempty"`
}

// DesiredState is what a run should be doing.
// +kubebuilder:validation:Enum=Running;Suspended;Cancelled
type DesiredState string

const (
	// DesiredStateRunning runs, parks and resumes.
	DesiredStateRunning DesiredState = "Running"
	// DesiredStateSuspended gives the pod back at the next record boundary and starts none.
	DesiredStateSuspended DesiredState = "Suspended"
	// DesiredStateCancelled ends the run. It is final.
	DesiredStateCancelled DesiredState = "Cancelled"
)

// AgentRun is one run of an agent. It ends once, and says how by its conditions Succeeded and Finished.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=arun,categories=belay
// +kubebuilder:printcolumn:name="Succeeded",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].reason`
// +kubebuilder:printcolumn:name="Leg",type=string,JSONPath=`.status.runner.legDisplay`
// +kubebuilder:printcolumn:name="Turn",type=integer,JSONPath=`.status.runner.turn`
// +kubebuilder:printcolumn:name="Resumes",type=integer,JSONPath=`.status.resumes`
// +kubebuilder:printcolumn:name="Cost",type=string,JSONPath=`.status.runner.usage.cost`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Pod",type=string,priority=1,JSONPath=`.status.podName`
// +kubebuilder:printcolumn:name="Tokens",type=integer,priority=1,JSONPath=`.status.runner.usage.totalTokens`
// +kubebuilder:printcolumn:name="Ladder",type=string,priority=1,JSONPath=`.spec.ladderRef.name`
// +kubebuilder:printcolumn:name="Epoch",type=integer,priority=1,JSONPath=`.status.epoch`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 52 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be a DNS label of at most 52 characters: pods are named after it"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.epoch) || has(self.status)",message="status cannot be removed"
type AgentRun struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the desired run.
	// +required
	Spec AgentRunSpec `json:"spec,omitzero"`

	// status is written by the agentrun controller, and its block runner by the run's own pod.
	// +optional
	Status AgentRunStatus `json:"status,omitzero"`
}

// AgentRunList is a list of runs.
//
// +kubebuilder:object:root=true
type AgentRunList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []AgentRun `json:"items"`
}
