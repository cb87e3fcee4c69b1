package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RunnerStatus is what the run's pod reports. The whole block is applied by the pod of epoch, with field manager
// belay-runner; nobody else writes it. It stays when the pod is gone.
type RunnerStatus struct {
	// epoch is the epoch of the pod that wrote the block.
	// +required
	// +kubebuilder:validation:Minimum=1
	Epoch int64 `json:"epoch,omitempty"`

	// turn is the number of committed turns.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Turn *int32 `json:"turn,omitempty"`

	// leg is the name of the leg that is asked, or was asked last.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Leg string `json:"leg,omitempty"`

	// failoverFrom is the name of the leg that leg stands in for; unset for the first leg of the plan.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	FailoverFrom string `json:"failoverFrom,omitempty"`

	// legDisplay is leg and failoverFrom for people, for example "b (from a)".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=140
	LegDisplay string `json:"legDisplay,omitempty"`

	// unusableLegs are the legs that the newest plan left out for another reason than their route's health or the run's own
	// choice, for example because their credential is missing.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	UnusableLegs []UnusableLeg `json:"unusableLegs,omitempty"`

	// replayedTurns is how many committed turns were taken from the ledger instead of being asked for again, over all pods
	// of the run.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReplayedTurns *int32 `json:"replayedTurns,omitempty"`

	// usage is the usage so far, over all pods of the run.
	// +optional
	Usage *Usage `json:"usage,omitempty"`

	// routes are the levels of health that the run sees, one for each route that is not simply well. A missing route has
	// no failures.
	// +optional
	// +listType=map
	// +listMapKey=route
	// +kubebuilder:validation:MaxItems=32
	Routes []RouteLevel `json:"routes,omitempty"`

	// ledger is the ledger's last durable record.
	// +optional
	Ledger *LedgerHead `json:"ledger,omitempty"`

	// wake is set while the run waits for a route: in place while its pod lives, parked after final says so.
	// +optional
	Wake *Wake `json:"wake,omitempty"`

	// final is set by the last report of a pod.
	// +optional
	Final *Final `json:"final,omitempty"`
}

// UnusableLeg is a leg that a run cannot use.
type UnusableLeg struct {
	// name is the leg's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// reason says why, as one word, for example CredentialMissing.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
}

// ProbeResult is what a probe of a half-open route found.
// +kubebuilder:validation:Enum=Succeeded;Failed;Released
type ProbeResult string

const (
	// ProbeSucceeded closes the route.
	ProbeSucceeded ProbeResult = "Succeeded"
	// ProbeFailed opens the route for longer.
	ProbeFailed ProbeResult = "Failed"
	// ProbeReleased found nothing about the route's health; another may probe.
	ProbeReleased ProbeResult = "Released"
)

// RouteLevel is what one run sees of one route. It states levels, not events, so that reading it twice or late does no harm.
type RouteLevel struct {
	// route is the name of the route's ProviderHealth object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Route string `json:"route,omitempty"`

	// generation is the generation of the shared state under which this was seen; a report of an older one is ignored.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Generation *int64 `json:"generation,omitempty"`

	// consecutiveBlind is the number of failures without a hint since the last success.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ConsecutiveBlind *int32 `json:"consecutiveBlind,omitempty"`

	// lastKind is the kind of the last failure.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	LastKind string `json:"lastKind,omitempty"`

	// lastHTTPStatus is the HTTP status of the last failure, if it had one.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=999
	LastHTTPStatus int32 `json:"lastHTTPStatus,omitempty"`

	// lastCode is the provider's own code of the last failure, if it had one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.:-]+$`
	LastCode string `json:"lastCode,omitempty"`

	// lastFailureTime is when the last failure was seen.
	// +optional
	LastFailureTime *metav1.MicroTime `json:"lastFailureTime,omitempty"`

	// lastSuccessTime is when the last success was seen.
	// +optional
	LastSuccessTime *metav1.MicroTime `json:"lastSuccessTime,omitempty"`

	// coolUntil is when the provider said to come back.
	// +optional
	CoolUntil *metav1.MicroTime `json:"coolUntil,omitempty"`

	// probeToken is the token of the probe that probeResult is about.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ProbeToken string `json:"probeToken,omitempty"`

	// probeResult is what the probe found.
	// +optional
	ProbeResult ProbeResult `json:"probeResult,omitempty"`
}

// LedgerHead is the last durable record of a ledger. A ledger that does not contain it was rolled back.
type LedgerHead struct {
	// seq is the record's number.
	// +required
	// +kubebuilder:validation:Minimum=1
	Seq int64 `json:"seq,omitempty"`

	// hash is the first 8 bytes of the SHA-256 of the record's line, in hex.
	// +required
	// +kubebuilder:validation:MinLength=16
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]+$`
	Hash string `json:"hash,omitempty"`
}

// Wake is what a waiting run waits for.
type Wake struct {
	// reason is a reason of condition Parked.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// until is when to try again at the latest. A parked run without it waits for a change of its ladder or of a route.
	// +optional
	Until *metav1.MicroTime `json:"until,omitempty"`

	// routes are the names of the routes whose reopening ends the wait.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Routes []string `json:"routes,omitempty"`
}

// FinalOutcome is why a pod of a run ends in order.
// +kubebuilder:validation:Enum=Produced;Unknown;Failed;Parked;Suspended;Interrupted;Fenced
type FinalOutcome string

const (
	// FinalProduced ends the run as Succeeded.
	FinalProduced FinalOutcome = "Produced"
	// FinalUnknown ends the run without evidence that the work was done.
	FinalUnknown FinalOutcome = "Unknown"
	// FinalFailed ends the run for another reason.
	FinalFailed FinalOutcome = "Failed"
	// FinalParked gives the pod back until wake.
	FinalParked FinalOutcome = "Parked"
	// FinalSuspended gives the pod back because spec.desiredState asks for it.
	FinalSuspended FinalOutcome = "Suspended"
	// FinalInterrupted stopped at a record boundary, to be continued by a new pod at once.
	FinalInterrupted FinalOutcome = "Interrupted"
	// FinalFenced found that another pod has the ledger; ledgerEpoch has its epoch if it is newer.
	FinalFenced FinalOutcome = "Fenced"
)

// Final is the last report of a pod.
type Final struct {
	// outcome is why the pod ends.
	// +required
	Outcome FinalOutcome `json:"outcome,omitempty"`

	// reason is a reason of condition Succeeded when the run ends, else of the condition that outcome is about.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z]+$`
	Reason string `json:"reason,omitempty"`

	// message says for people what happened and what was tried. It holds no text of a model or provider.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`

	// usage is the total of the run.
	// +optional
	Usage *Usage `json:"usage,omitempty"`

	// legs are the usage of each leg.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Legs []LegUsage `json:"legs,omitempty"`

	// head is the ledger's last record.
	// +optional
	Head *LedgerHead `json:"head,omitempty"`

	// text is the beginning of the run's answer, at most 4 KiB.
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

	// ledgerEpoch is the newest epoch in the ledger when outcome is Fenced; unset if another pod holds the ledger without
	// having written to it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	LedgerEpoch int64 `json:"ledgerEpoch,omitempty"`
}
