package v1alpha1

// What an unset field of a RouteLadder means.
const (
	DefaultMaxOutputTokensCeiling = 32768 // a leg's output cap is a quarter of its window, at most this

	DefaultConnectSeconds   = 10
	DefaultFirstByteSeconds = 120
	DefaultIdleSeconds      = 120
	DefaultProgressSeconds  = 300
	DefaultAttemptSeconds   = 1200

	DefaultMaxRetries            = 5
	DefaultBaseDelayMilliseconds = 500
	DefaultBackoffFactor         = 2
	DefaultMaxDelaySeconds       = 30
	DefaultMaxAttemptsPerTurn    = 20
	DefaultMaxRewalks            = 6
	DefaultMaxWaitSeconds        = 10
	DefaultParkAfterSeconds      = 300

	DefaultFailureThreshold    = 3
	DefaultBaseCooldownSeconds = 30

	DefaultBilling             = BillingMetered
	DefaultLegState            = LegStateActive
	DefaultSecurityClass       = SecurityClassPublic
	DefaultInsecure            = InsecureForbid
	DefaultReasoning           = ReasoningDrop
	DefaultMissingFinishReason = MissingFinishReasonReject
	DefaultOnAllTripped        = OnAllTrippedPark
	DefaultInformedFailures    = InformedFailuresCool
	DefaultOnCredentialFailure = OnCredentialFailureAdvance
	DefaultOnContentFiltered   = OnContentFilteredFail
)

// What an unset field of an AgentRun means.
const (
	DefaultMaxTurns               = 200
	DefaultMaxModelRetries        = 100
	DefaultActiveDeadlineSeconds  = 86400
	DefaultMaxParkedSeconds       = 604800
	DefaultRestartLimit           = 3
	DefaultDisruptionLimit        = 20
	DefaultStartupDeadlineSeconds = 600
	DefaultVolumeSize             = "1Gi"

	DefaultMetered         = MeteredDeny
	DefaultAccessMode      = ReadWriteOncePod
	DefaultLedgerRetention = LedgerRetentionRetain
	DefaultDesiredState    = DesiredStateRunning
)
