package loop

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/route"
)

const (
	// A run that waits for a credential looks again after a minute, then after twice as long each time, up to an hour.
	credentialParkBase = time.Minute
	credentialParkMax  = time.Hour
)

// fingerprint tells two values of a credential apart without telling anything about them: it is keyed by the run, and too
// short to prove a guess.
func fingerprint(runUID string, target provider.Target) string {
	mac := hmac.New(sha256.New, []byte("belay credential\x00"+runUID))
	mac.Write([]byte(target.Route.Name()))
	mac.Write([]byte{0})
	mac.Write([]byte(strings.TrimSpace(target.Secret)))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

func blamesCredential(f *failure.Failure) bool {
	return f != nil && f.Kind.Disposition().Flag == failure.FlagCredential
}

// judgeCredential remembers what a receipt says about the credential of its route.
func (s *State) judgeCredential(p *record.LLMAttempt) {
	switch {
	case p.Failure == nil:
		delete(s.Rejected, p.Route)
	case blamesCredential(p.Failure) && p.Credential != "":
		if s.Rejected == nil {
			s.Rejected = map[route.Name]string{}
		}
		s.Rejected[p.Route] = p.Credential
	}
}

// withRejected returns the ladder with each leg marked whose credential a provider has rejected, as long as its value has
// not changed.
func (r *runner) withRejected(l Ladder) Ladder {
	l.Legs = slices.Clone(l.Legs)
	for i := range l.Legs {
		leg := &l.Legs[i]
		target, connected := l.Targets[leg.Name]
		if usable := leg.Credential == "" || leg.Credential == ladder.CredentialReady; !connected || !usable {
			continue
		}
		if r.rejected(target) {
			leg.Credential = ladder.CredentialInvalid
		}
	}
	return l
}

func (r *runner) rejected(target provider.Target) bool {
	rejected, known := r.state.Rejected[target.Route.Name()]
	return known && rejected == fingerprint(r.state.RunUID, target)
}

// credentialStop holds the ladder's policy for a leg that would be asked first and whose credential is known to be
// rejected: with Park or Fail, no other leg takes its place.
func (r *runner) credentialStop(t *turn) (stopped bool, err error) {
	policy := t.ladder.Policy.OnCredentialFailure
	if policy != ladder.ParkOnCredentialFailure && policy != ladder.FailOnCredentialFailure {
		return false, nil
	}
	first := len(t.ladder.Legs)
	if len(t.plan.Legs) > 0 {
		first = slices.IndexFunc(t.ladder.Legs, func(l ladder.Leg) bool { return l.Name == t.plan.Legs[0].Name })
	}
	for _, leg := range t.ladder.Legs[:first] {
		if leg.Credential != ladder.CredentialInvalid || !t.policy.Allows(leg) {
			continue
		}
		text := fmt.Sprintf("leg %q: the provider rejected key %q of Secret %q, and its value has not changed since",
			leg.Name, leg.Route.SecretKey, leg.Route.SecretName)
		if policy == ladder.FailOnCredentialFailure {
			return true, r.finish(record.RunEnd{Turn: t.number, Reason: string(ladder.StopCredentialInvalid),
				Message: sentence(text + "; the ladder's policy.onCredentialFailure is Fail"), Text: r.state.finalText()})
		}
		return true, r.park(t, ladder.Decision{Parking: ladder.ParkCredential, Routes: []route.Name{leg.Route.Name()},
			Message: text + "; the run goes on when the Secret or the ladder has changed"})
	}
	return false, nil
}

// credentialWake is when a run that waits for a credential looks again.
func (r *runner) credentialWake() time.Time {
	wait := credentialParkBase
	for i := 0; i < r.state.CredentialParks && wait < credentialParkMax; i++ {
		wait *= 2
	}
	return r.cfg.Clock.Now().Add(min(wait, credentialParkMax))
}

// reread looks whether the credential that a leg rejected has another value by now, and uses it.
func (r *runner) reread(ctx context.Context, t *turn, d ladder.Decision) (changed bool, err error) {
	current, err := r.cfg.Ladders.Current(ctx)
	if err != nil {
		return false, fmt.Errorf("read the credential of leg %s again: %w", d.Leg, err)
	}
	fresh, found := current.Targets[d.Leg]
	target := t.ladder.Targets[d.Leg]
	if !found || fresh.Route != target.Route || strings.TrimSpace(fresh.Secret) == "" || r.rejected(fresh) {
		return false, nil
	}
	target.Secret = fresh.Secret
	t.ladder.Targets[d.Leg] = target
	delete(t.prepared, d.Leg)
	return true, nil
}
