package failure

// SameLeg says whether the leg that failed is asked again within the turn.
type SameLeg string

const (
	// SameLegNever does not ask the leg again.
	SameLegNever SameLeg = "Never"
	// SameLegBackoff asks again after a backoff, until the leg's tries are spent or its breaker opens.
	SameLegBackoff SameLeg = "Backoff"
	// SameLegOnlyIfAlone asks again, with wider windows, only if no other leg is available.
	SameLegOnlyIfAlone SameLeg = "OnlyIfAlone"
	// SameLegShortWait asks again twice if each wait is short (waits.maxWaitSeconds) and another leg is available, and up
	// to the retry budget if none is.
	SameLegShortWait SameLeg = "ShortWait"
	// SameLegAfterReread asks again once, if the mounted credential, read again, has another value.
	SameLegAfterReread SameLeg = "AfterReread"
	// SameLegAfterRepair asks again once, with a repaired body, if the sub-kind says how to repair it.
	SameLegAfterRepair SameLeg = "AfterRepair"
	// SameLegAfterReduction asks again after the context was reduced, at most twice in a turn.
	SameLegAfterReduction SameLeg = "AfterReduction"
	// SameLegRaiseCap asks again once with a higher output cap, or to continue from the break if the cut turn has no call.
	SameLegRaiseCap SameLeg = "RaiseCap"
	// SameLegOnce asks again once.
	SameLegOnce SameLeg = "Once"
)

// NextLeg says whether and when the walk moves on to the next leg of the plan.
type NextLeg string

const (
	// NextLegNever does not move on: another leg would fail alike, or would mask the fault.
	NextLegNever NextLeg = "Never"
	// NextLegAtOnce moves on without another try.
	NextLegAtOnce NextLeg = "AtOnce"
	// NextLegWhenSpent moves on when the same leg's tries are spent or its breaker opens.
	NextLegWhenSpent NextLeg = "WhenSpent"
	// NextLegWhenWaitTooLong moves on at once if the wait is longer than waits.maxWaitSeconds, else when tries are spent.
	NextLegWhenWaitTooLong NextLeg = "WhenWaitTooLong"
	// NextLegIfWindowFits moves on only to a leg whose context window fits the request.
	NextLegIfWindowFits NextLeg = "IfWindowFits"
	// NextLegByCredentialPolicy does what policy.onCredentialFailure says: Advance, Park or Fail.
	NextLegByCredentialPolicy NextLeg = "ByCredentialPolicy"
	// NextLegByFilterPolicy does what policy.onContentFiltered says: Fail or Advance.
	NextLegByFilterPolicy NextLeg = "ByFilterPolicy"
)

// Health says what a failure means for the health of its route.
type Health string

const (
	// HealthBlind counts towards the breaker's threshold: the route is broken and did not say until when.
	HealthBlind Health = "Blind"
	// HealthInformed cools the route until the hint without counting; without a hint for 2 s doubling to 60 s.
	HealthInformed Health = "Informed"
	// HealthCredentialCooling cools every route of the same credential until its reset; without one for 60 s doubling.
	HealthCredentialCooling Health = "CredentialCooling"
	// HealthNeutral says nothing about the route. A half-open probe that ends so is released.
	HealthNeutral Health = "Neutral"
)

// Flag says which part of the ladder's configuration a failure puts in question.
type Flag string

const (
	// FlagNone blames no configuration.
	FlagNone Flag = ""
	// FlagModel says that the leg names a model that its endpoint does not serve.
	FlagModel Flag = "Model"
	// FlagCredential says that the leg's credential was refused. It is never passed over silently.
	FlagCredential Flag = "Credential"
)

// Disposition is what a kind means for the walk and for health.
type Disposition struct {
	SameLeg SameLeg
	NextLeg NextLeg
	Health  Health
	Flag    Flag
	// Transient tells that the leg may well succeed later in the same turn. Another walk over the plan leaves out the legs
	// that did not fail transiently.
	Transient bool
}

// Disposition returns the one table of what follows from a kind. A kind that this version does not know, from the
// ledger of a newer one, is treated as Unknown.
func (k Kind) Disposition() Disposition {
	switch k {
	case Network, Timeout, ServerError, StreamTruncated, StreamMalformed:
		return Disposition{SameLeg: SameLegBackoff, NextLeg: NextLegWhenSpent, Health: HealthBlind, Transient: true}
	case StreamStalled:
		return Disposition{SameLeg: SameLegOnlyIfAlone, NextLeg: NextLegAtOnce, Health: HealthBlind, Transient: true}
	case RateLimited, Overloaded:
		return Disposition{SameLeg: SameLegShortWait, NextLeg: NextLegWhenWaitTooLong, Health: HealthInformed, Transient: true}
	case QuotaExhausted, Billing:
		return Disposition{SameLeg: SameLegNever, NextLeg: NextLegAtOnce, Health: HealthCredentialCooling}
	case ModelNotFound:
		return Disposition{SameLeg: SameLegNever, NextLeg: NextLegAtOnce, Health: HealthNeutral, Flag: FlagModel}
	case AuthError, PermissionDenied:
		return Disposition{SameLeg: SameLegAfterReread, NextLeg: NextLegByCredentialPolicy, Health: HealthNeutral, Flag: FlagCredential}
	case InvalidRequest:
		return Disposition{SameLeg: SameLegAfterRepair, NextLeg: NextLegNever, Health: HealthNeutral}
	case ContextLengthExceeded:
		return Disposition{SameLeg: SameLegAfterReduction, NextLeg: NextLegIfWindowFits, Health: HealthNeutral}
	case OutputTruncated:
		return Disposition{SameLeg: SameLegRaiseCap, NextLeg: NextLegNever, Health: HealthNeutral}
	case ContentFiltered:
		return Disposition{SameLeg: SameLegNever, NextLeg: NextLegByFilterPolicy, Health: HealthNeutral}
	case EmptyResponse:
		return Disposition{SameLeg: SameLegOnce, NextLeg: NextLegWhenSpent, Health: HealthNeutral}
	case Cancelled:
		return Disposition{SameLeg: SameLegNever, NextLeg: NextLegNever, Health: HealthNeutral}
	case Unknown:
		return unknownDisposition
	}
	return unknownDisposition
}

// unknownDisposition is retryable within the bounded budget, and says nothing about health.
var unknownDisposition = Disposition{SameLeg: SameLegBackoff, NextLeg: NextLegWhenSpent, Health: HealthNeutral, Transient: true}
