package v1alpha1

import "slices"

// Conditions of an AgentRun. All of them exist from the first reconciliation on, and flip instead of vanishing.
const (
	// ConditionSucceeded is Unknown until the run ends, then True or False for good.
	ConditionSucceeded = "Succeeded"
	// ConditionFinished turns True once, whatever the outcome.
	ConditionFinished = "Finished"
	// ConditionAdmitted says whether the run may have a pod at all.
	ConditionAdmitted = "Admitted"
	// ConditionPodReady says whether the run's pod works.
	ConditionPodReady = "PodReady"
	// ConditionParked is True while the run has given its pod back and waits for a route.
	ConditionParked = "Parked"
	// ConditionSuspended is True while the run has no pod because spec.desiredState says so.
	ConditionSuspended = "Suspended"
	// ConditionLedgerHealthy says whether the run's record can be read and written.
	ConditionLedgerHealthy = "LedgerHealthy"
	// ConditionRouteAvailable says whether a leg can be asked now.
	ConditionRouteAvailable = "RouteAvailable"
	// ConditionStalled is True for a run that ended without success; kstatus reads it as a failure.
	ConditionStalled = "Stalled"
)

// Conditions of a RouteLadder; Available is a condition of ProviderHealth too.
const (
	// ConditionAccepted says whether runs may use the ladder, and names each leg that is left out.
	ConditionAccepted = "Accepted"
	// ConditionReady is about configuration alone; it stays True in an outage.
	ConditionReady = "Ready"
	// ConditionAvailable mirrors health: whether a leg of the ladder, or the route, can be used now.
	ConditionAvailable = "Available"
	// ConditionResilient says whether the ladder, as it is written, survives the loss of a leg or provider. It is advice.
	ConditionResilient = "Resilient"
	// ConditionLegsVerified is False while a provider rejects the credential or the model of an accepted leg.
	ConditionLegsVerified = "LegsVerified"
)

// Reasons of Succeeded while it is Unknown.
const (
	ReasonPending   = "Pending"   // no pod has been created yet
	ReasonRunning   = "Running"   // a pod works, or a new one is about to
	ReasonParked    = "Parked"    // no pod until a route reopens
	ReasonSuspended = "Suspended" // no pod until spec.desiredState is Running again; also Suspended=True
)

// ReasonCompleted is the only reason of Succeeded=True.
const ReasonCompleted = "Completed"

// Reasons of Succeeded=False. The message names what was tried.
const (
	ReasonOutcomeUnknown      = "OutcomeUnknown"      // a natural end without evidence that the work was done
	ReasonOutputTruncated     = "OutputTruncated"     // the answer was cut by its output limit, also after the limit was raised
	ReasonModelRefused        = "ModelRefused"        // the model declined
	ReasonContentFiltered     = "ContentFiltered"     // a provider's filter withheld the prompt or the answer
	ReasonEmptyResponse       = "EmptyResponse"       // finished answers without text and calls
	ReasonSchemaMismatch      = "SchemaMismatch"      // the answer does not fit the demanded schema
	ReasonMaxTurnsReached     = "MaxTurnsReached"     // limits.maxTurns
	ReasonBudgetExceeded      = "BudgetExceeded"      // limits.maxTokens or limits.maxCostMicroUSD
	ReasonDeadlineExceeded    = "DeadlineExceeded"    // limits.activeDeadlineSeconds
	ReasonRetriesExhausted    = "RetriesExhausted"    // the retries of a turn or of the run are spent
	ReasonAllRoutesTripped    = "AllRoutesTripped"    // every allowed leg is open or cooling; also a reason of Parked and RouteAvailable
	ReasonNoRouteAllowed      = "NoRouteAllowed"      // no leg is left that may be asked
	ReasonPolicyConflict      = "PolicyConflict"      // the run's policy forbids a leg that it does not exclude; also of Admitted
	ReasonCredentialInvalid   = "CredentialInvalid"   // every credential is missing or rejected; also of Parked
	ReasonInvalidRequest      = "InvalidRequest"      // a request that is wrong everywhere
	ReasonContextIrreducible  = "ContextIrreducible"  // the conversation cannot be made to fit
	ReasonLoopDetected        = "LoopDetected"        // the model repeats itself
	ReasonToolRepairExhausted = "ToolRepairExhausted" // the model does not mend its calls
	ReasonToolProviderFailed  = "ToolProviderFailed"  // no tool provider is left
	ReasonLedgerCorrupt       = "LedgerCorrupt"       // the record is damaged; also of LedgerHealthy
	ReasonLedgerUnwritable    = "LedgerUnwritable"    // the record cannot be written; also of LedgerHealthy
	ReasonLedgerRegressed     = "LedgerRegressed"     // the record is older than what was reported; also of LedgerHealthy
	ReasonStartupDeadline     = "StartupDeadline"     // startupDeadlineSeconds
	ReasonRestartLimit        = "RestartLimit"        // restartLimit
	ReasonDisruptionLimit     = "DisruptionLimit"     // disruptionLimit
	ReasonCancelled           = "Cancelled"           // desiredState: Cancelled
)

// Reasons of Finished.
const (
	ReasonNotFinished = "NotFinished"
	ReasonFinished    = "Finished"
)

// Reasons of Admitted besides PolicyConflict.
const (
	ReasonAccepted       = "Accepted"       // also of the ladder's Accepted
	ReasonLadderNotFound = "LadderNotFound" // ladderRef names no ladder; the run starts when it appears
	ReasonLadderUnusable = "LadderUnusable" // no leg of the ladder is accepted; also of Parked
)

// Reasons of PodReady.
const (
	ReasonPodReady        = "PodReady"        // the runner runs
	ReasonPodNotNeeded    = "PodNotNeeded"    // finished, parked, suspended or not admitted
	ReasonPodCreating     = "PodCreating"     // the epoch is written, the pod is about to be created
	ReasonPodCreateFailed = "PodCreateFailed" // the API server refuses the pod or its claim, for example by a quota; it is tried again
	ReasonPodNameTaken    = "PodNameTaken"    // a foreign pod has the epoch's name
	ReasonPodStarting     = "PodStarting"     // the pod exists, its runner does not run yet; the message says why
	ReasonPodEnding       = "PodEnding"       // the pod is being deleted
	ReasonPodEnded        = "PodEnded"        // the pod ended, its end is recorded
	ReasonBackoff         = "Backoff"         // waiting until nextEpochTime
	ReasonNodeUnreachable = "NodeUnreachable" // the pod is deleted but its node has not confirmed that it stopped
	ReasonMultiplePods    = "MultiplePods"    // more than one pod of the run lives; none is created
)

// ReasonNotParked is the reason of Parked=False.
const ReasonNotParked = "NotParked"

// Reasons of Suspended=False; True has ReasonSuspended.
const (
	ReasonNotSuspended = "NotSuspended"
	ReasonSuspending   = "Suspending" // the pod has not ended yet
)

// Reasons of LedgerHealthy and RouteAvailable.
const (
	ReasonNotReported = "NotReported" // no pod of the run has said anything yet
	ReasonHealthy     = "Healthy"
	ReasonAvailable   = "Available" // also of the ladder's and the route's Available
)

// ReasonNotStalled is the reason of Stalled=False; True has the reason of Succeeded.
const ReasonNotStalled = "NotStalled"

// Reasons of a RouteLadder's Accepted, Ready and Available, and of legs that are left out.
const (
	ReasonLegsLeftOut  = "LegsLeftOut"  // accepted without some legs; the message names each and why
	ReasonNoUsableLeg  = "NoUsableLeg"  // not accepted: no leg is left
	ReasonReady        = "Ready"        // the configuration works
	ReasonUnavailable  = "Unavailable"  // no leg can be used now
	ReasonLegDrained   = "Drained"      // the leg's state is Drained
	ReasonInvalidURL   = "InvalidURL"   // the provider's base URL is not usable
	ReasonUnknownRoute = "UnknownRoute" // the leg's provider does not exist

	ReasonInvalidCABundle = "InvalidCABundle" // the provider's caBundle holds no certificate that can be read
)

// Reasons of a RouteLadder's Resilient. Of several, the condition has the first, and its message names all.
const (
	ReasonResilient        = "Resilient"
	ReasonThinChain        = "ThinChain"        // one accepted leg: nothing to fail over to
	ReasonDominantProvider = "DominantProvider" // one provider has more than a third of the accepted legs
	ReasonUnreachableLeg   = "UnreachableLeg"   // a leg repeats an earlier leg's route, so it is open whenever that one is
)

// Reasons of a RouteLadder's LegsVerified besides CredentialInvalid.
const (
	ReasonNoRejection   = "NoRejection"   // no provider has rejected a leg since it last worked
	ReasonModelNotFound = "ModelNotFound" // a provider does not serve a leg's model
)

// Reasons of a ProviderHealth's Available besides Available.
const (
	ReasonCooling      = "Cooling"      // the provider said when to come back
	ReasonOpen         = "Open"         // tripped on blind failures
	ReasonHalfOpen     = "HalfOpen"     // one run tries the route
	ReasonForcedOpen   = "ForcedOpen"   // by override
	ReasonForcedClosed = "ForcedClosed" // by override
)

// FailureReasons returns every reason of Succeeded=False.
func FailureReasons() []string {
	return []string{
		ReasonOutcomeUnknown, ReasonOutputTruncated, ReasonModelRefused, ReasonContentFiltered, ReasonEmptyResponse,
		ReasonSchemaMismatch, ReasonMaxTurnsReached, ReasonBudgetExceeded, ReasonDeadlineExceeded, ReasonRetriesExhausted,
		ReasonAllRoutesTripped, ReasonNoRouteAllowed, ReasonPolicyConflict, ReasonCredentialInvalid, ReasonInvalidRequest,
		ReasonContextIrreducible, ReasonLoopDetected, ReasonToolRepairExhausted, ReasonToolProviderFailed,
		ReasonLedgerCorrupt, ReasonLedgerUnwritable, ReasonLedgerRegressed, ReasonStartupDeadline, ReasonRestartLimit,
		ReasonDisruptionLimit, ReasonCancelled,
	}
}

// AgentRunReasons returns the closed list of reasons of a condition of an AgentRun, whatever its status; nil for a type that
// an AgentRun does not have.
func AgentRunReasons(conditionType string) []string {
	switch conditionType {
	case ConditionSucceeded:
		return slices.Concat([]string{ReasonPending, ReasonRunning, ReasonParked, ReasonSuspended, ReasonCompleted}, FailureReasons())
	case ConditionFinished:
		return []string{ReasonNotFinished, ReasonFinished}
	case ConditionAdmitted:
		return []string{ReasonAccepted, ReasonLadderNotFound, ReasonLadderUnusable, ReasonPolicyConflict}
	case ConditionPodReady:
		return []string{
			ReasonPodReady, ReasonPodNotNeeded, ReasonPodCreating, ReasonPodCreateFailed, ReasonPodNameTaken, ReasonPodStarting,
			ReasonPodEnding, ReasonPodEnded, ReasonBackoff, ReasonNodeUnreachable, ReasonMultiplePods,
		}
	case ConditionParked:
		return []string{ReasonNotParked, ReasonAllRoutesTripped, ReasonLadderUnusable, ReasonCredentialInvalid}
	case ConditionSuspended:
		return []string{ReasonNotSuspended, ReasonSuspending, ReasonSuspended}
	case ConditionLedgerHealthy:
		return []string{ReasonNotReported, ReasonHealthy, ReasonLedgerCorrupt, ReasonLedgerUnwritable, ReasonLedgerRegressed}
	case ConditionRouteAvailable:
		return []string{ReasonNotReported, ReasonAvailable, ReasonAllRoutesTripped, ReasonLadderUnusable, ReasonCredentialInvalid}
	case ConditionStalled:
		return slices.Concat([]string{ReasonNotStalled}, FailureReasons())
	default:
		return nil
	}
}
