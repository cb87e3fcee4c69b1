package contract

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/route"
)

// Credentials looks up secrets.
type Credentials interface {
	// Credential returns the value of a key of a Secret, and whether it can be sent.
	Credential(secret, key string) (string, ladder.CredentialState)
	// AllowedHosts returns what the key AllowedHostsKey of a Secret says, empty if the Secret has no such key.
	AllowedHosts(secret string) string
}

// AllowedHostsKey is the key by which the owner of a Secret says which hosts it may be sent to, separated by commas or
// white space. A Secret without it may be sent to whatever host a ladder of its namespace names.
const AllowedHostsKey = "allowed-hosts"

// allowed tells whether a list of hosts names the host. An empty list names every host.
func allowed(hosts, host string) bool {
	names := strings.FieldsFunc(hosts, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	return len(names) == 0 || slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, host) })
}

// RouteOf returns the identity for health of a leg of the ladder. A leg without a provider has the zero route.
func RouteOf(l *v1alpha1.RouteLadder, leg v1alpha1.Leg) route.Route {
	p := providerOf(l, leg.Provider)
	if p == nil {
		return route.Route{}
	}
	r := route.Route{BaseURL: p.BaseURL, Dialect: route.Dialect(p.Dialect), Model: leg.Model}
	if p.Credential != nil {
		r.SecretName, r.SecretKey = p.Credential.SecretRef.Name, p.Credential.SecretRef.Key
	}
	return r
}

func providerOf(l *v1alpha1.RouteLadder, name string) *v1alpha1.Provider {
	for i := range l.Spec.Providers {
		if l.Spec.Providers[i].Name == name {
			return &l.Spec.Providers[i]
		}
	}
	return nil
}

// LadderOf returns the failover chain, and where each of its legs sends. Legs whose provider does not exist are left
// out: the API server refuses such a ladder, so they can only come from elsewhere.
func LadderOf(l *v1alpha1.RouteLadder, credentials Credentials) (ladder.Ladder, map[string]provider.Target) {
	out := ladder.Ladder{
		Name: l.Name, UID: string(l.UID), Generation: l.Generation,
		Retry: retryOf(l.Spec.Retry), Endurance: enduranceOf(l.Spec.Endurance), Waits: waitsOf(l.Spec.Waits),
		Breaker: BreakerOf(l), Policy: policyOf(l.Spec.Policy),
	}
	targets := map[string]provider.Target{}
	for _, leg := range l.Spec.Legs {
		p := providerOf(l, leg.Provider)
		if p == nil {
			continue
		}
		secret, state := "", ladder.CredentialReady
		if p.Credential != nil {
			ref := p.Credential.SecretRef
			secret, state = credentials.Credential(ref.Name, ref.Key)
			if state == ladder.CredentialReady && !allowed(credentials.AllowedHosts(ref.Name), RouteOf(l, leg).Host()) {
				secret, state = "", ladder.CredentialNotForHost
			}
		}
		chosen := legOf(l, leg, state)
		out.Legs = append(out.Legs, chosen)
		targets[leg.Name] = targetOf(*p, leg, chosen, secret)
	}
	return out, targets
}

func legOf(l *v1alpha1.RouteLadder, leg v1alpha1.Leg, credential ladder.CredentialState) ladder.Leg {
	out := ladder.Leg{
		Name: leg.Name, Provider: leg.Provider, Route: RouteOf(l, leg),
		ContextWindow: leg.ContextWindow, MaxOutputTokens: leg.MaxOutputTokens,
		Billing:       ladder.Billing(or(leg.Billing, v1alpha1.DefaultBilling)),
		SecurityClass: ladder.SecurityClass(or(leg.SecurityClass, v1alpha1.DefaultSecurityClass)),
		State:         ladder.State(or(leg.State, v1alpha1.DefaultLegState)),
		Credential:    credential,
	}
	for _, c := range leg.Capabilities {
		out.Capabilities = append(out.Capabilities, ladder.Capability(c))
	}
	if p := leg.Price; p != nil {
		price := budget.NewPrice(deref(p.InputMicroUSDPerMTok, 0), deref(p.OutputMicroUSDPerMTok, 0),
			p.CachedInputMicroUSDPerMTok, p.CacheWriteMicroUSDPerMTok)
		out.Price = &price
	}
	return out
}

func targetOf(p v1alpha1.Provider, leg v1alpha1.Leg, chosen ladder.Leg, secret string) provider.Target {
	t := provider.Target{
		Leg: leg.Name, Route: chosen.Route, Secret: secret, CABundle: []byte(p.CABundle),
		Insecure:            provider.Insecure(or(p.Insecure, v1alpha1.DefaultInsecure)),
		MaxOutputTokens:     chosen.OutputCap(),
		Timeouts:            timeoutsOf(leg.Timeouts),
		Reasoning:           provider.ReasoningReplay(or(leg.Reasoning, v1alpha1.DefaultReasoning)),
		MissingFinishReason: provider.MissingFinishReason(or(leg.MissingFinishReason, v1alpha1.DefaultMissingFinishReason)),
		Images:              chosen.Can(ladder.Images),
	}
	for _, h := range p.Headers {
		t.Headers = append(t.Headers, provider.Header{Name: h.Name, Value: h.Value})
	}
	if leg.Parameters != nil {
		t.Parameters = leg.Parameters.Raw
	}
	return t
}

func timeoutsOf(t *v1alpha1.Timeouts) provider.Timeouts {
	out := provider.DefaultTimeouts()
	if t == nil {
		return out
	}
	set := func(d *time.Duration, n *int32) {
		if n != nil {
			*d = seconds(*n)
		}
	}
	set(&out.Connect, t.ConnectSeconds)
	set(&out.FirstByte, t.FirstByteSeconds)
	set(&out.Idle, t.IdleSeconds)
	set(&out.Progress, t.ProgressSeconds)
	set(&out.Attempt, t.AttemptSeconds)
	return out
}

func retryOf(r *v1alpha1.RetryPolicy) ladder.Retry {
	if r == nil {
		return ladder.DefaultRetry()
	}
	return ladder.Retry{
		MaxRetries:         int(deref(r.MaxRetries, v1alpha1.DefaultMaxRetries)),
		BaseDelay:          time.Duration(or(r.BaseDelayMilliseconds, v1alpha1.DefaultBaseDelayMilliseconds)) * time.Millisecond,
		BackoffFactor:      int(or(r.BackoffFactor, v1alpha1.DefaultBackoffFactor)),
		MaxDelay:           seconds(or(r.MaxDelaySeconds, v1alpha1.DefaultMaxDelaySeconds)),
		MaxAttemptsPerTurn: int(or(r.MaxAttemptsPerTurn, v1alpha1.DefaultMaxAttemptsPerTurn)),
	}
}

func enduranceOf(e *v1alpha1.EndurancePolicy) ladder.Endurance {
	if e == nil {
		return ladder.DefaultEndurance()
	}
	return ladder.Endurance{MaxRewalks: int(deref(e.MaxRewalks, v1alpha1.DefaultMaxRewalks))}
}

func waitsOf(w *v1alpha1.WaitPolicy) ladder.Waits {
	if w == nil {
		return ladder.DefaultWaits()
	}
	return ladder.Waits{
		MaxWait:      seconds(deref(w.MaxWaitSeconds, v1alpha1.DefaultMaxWaitSeconds)),
		ParkAfter:    seconds(deref(w.ParkAfterSeconds, v1alpha1.DefaultParkAfterSeconds)),
		OnAllTripped: ladder.OnAllTripped(or(w.OnAllTripped, v1alpha1.DefaultOnAllTripped)),
	}
}

// BreakerOf returns how the breakers of the ladder's routes are configured.
func BreakerOf(l *v1alpha1.RouteLadder) breaker.Config {
	out := breaker.DefaultConfig()
	b := l.Spec.Breaker
	if b == nil {
		return out
	}
	out.FailureThreshold = int(or(b.FailureThreshold, v1alpha1.DefaultFailureThreshold))
	out.BaseCooldown = seconds(deref(b.BaseCooldownSeconds, v1alpha1.DefaultBaseCooldownSeconds))
	out.InformedTrips = or(b.Informed, v1alpha1.DefaultInformedFailures) == v1alpha1.InformedFailuresTrip
	return out
}

func policyOf(p *v1alpha1.FailurePolicy) ladder.FailurePolicy {
	if p == nil {
		return ladder.DefaultFailurePolicy()
	}
	return ladder.FailurePolicy{
		OnCredentialFailure: ladder.OnCredentialFailure(or(p.OnCredentialFailure, v1alpha1.DefaultOnCredentialFailure)),
		OnContentFiltered:   ladder.OnContentFiltered(or(p.OnContentFiltered, v1alpha1.DefaultOnContentFiltered)),
	}
}
