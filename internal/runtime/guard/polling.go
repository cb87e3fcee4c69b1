package guard

import (
	"slices"
	"time"
)

// poll is a call of a polling tool and since when it has had its present result.
type poll struct {
	call   Call
	digest string
	since  time.Time
}

// maxPolls bounds the calls whose time is kept; the one that came longest ago is forgotten first.
const maxPolls = 16

// polled takes the result of a call and reports whether it is a poll within its time. Such a call is not held against
// the run by any rule of this package, unless it was wrong in itself: to be told "not yet", by a result or by a failure,
// is what polling is for. The time runs on the records' clock; a step back counts as no time.
func (s *State) polled(c Call, digest string, r Result) bool {
	budget, ok := s.polling[c.Tool]
	if !ok {
		return false
	}
	p := poll{call: c, digest: digest, since: r.At}
	if at := slices.IndexFunc(s.polls, func(p poll) bool { return p.call.same(c) }); at >= 0 {
		if before := s.polls[at]; before.digest == digest || r.Refusal != NotRefused {
			p.digest, p.since = before.digest, before.since
		}
		s.polls = slices.Delete(s.polls, at, at+1)
	}
	s.polls = append(s.polls, p)
	if len(s.polls) > maxPolls {
		s.polls = slices.Delete(s.polls, 0, 1)
	}
	return r.At.Sub(p.since) <= budget
}
