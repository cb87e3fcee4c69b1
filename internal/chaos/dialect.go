package chaos

import (
	"net/http"

	"belay.dev/belay/internal/runtime/route"
)

// dialect is one API: what it refuses and how it writes.
type dialect interface {
	// path is what follows the leg's name in the URL.
	path() string
	// keyOf returns the credential of a request, empty if there is none.
	keyOf(http.Header) string
	// checkHeaders returns what is wrong with the headers besides the credential.
	checkHeaders(http.Header) *rejection
	// check reads a request's body and returns everything that the real API would refuse.
	check(request map[string]any, in checkContext) (conversation, []rejection)
	// tooLong is the refusal of a request that exceeds the context window.
	tooLong(tokens, reserved, window int64) rejection
	// requestIDHeader is the response header that names the request.
	requestIDHeader() string
	// errorBody writes an error.
	errorBody(r rejection, requestID string) []byte
	// frames writes a turn as a stream.
	frames(t turn) []frame
	// whole writes a turn as one JSON document.
	whole(t turn) []byte
	// inBandError writes an error inside a stream.
	inBandError(e InBandError) []byte
	// ping writes a sign of life that is no content.
	ping(text string) []byte
	// stopReason is the natural stop reason of a turn.
	stopReason(s Step) string
	// idShapes are the forms of the ids that the vendor mints.
	idShapes() idShapes
}

// checkContext is what the rules of a dialect depend on besides the request.
type checkContext struct {
	name   string
	leg    Leg
	mint   mint
	minted *mintedTurns
}

// idShape is a prefix and a number of characters of base 62.
type idShape struct {
	prefix     string
	characters int
}

// idShapes are the vendor-style ids of a dialect.
type idShapes struct{ request, response, call idShape }

func (s idShape) mint(m mint, leg string, ordinal uint64, index int) string {
	return m.id(s.prefix, s.characters, leg, ordinal, index)
}

func dialectOf(d route.Dialect) dialect {
	if d == route.AnthropicMessages {
		return anthropicMessages{}
	}
	return openAIChat{}
}

// turn is a model turn ready to be written.
type turn struct {
	id      string
	created int64
	model   string
	// thinking and redacted are the reasoning; each has its signature or blob.
	thinking, signature, redacted string
	text                          string
	calls                         []turnCall
	// stop is the stop reason in the dialect's words, empty to leave it out.
	stop            string
	usage           Usage
	includeUsage    bool
	omitDone        bool
	deltaCharacters int
}

type turnCall struct{ id, name, arguments string }

// contentBytes is the size of all that the model generated.
func (t turn) contentBytes() int {
	n := len(t.thinking) + len(t.redacted) + len(t.text)
	for _, c := range t.calls {
		n += len(c.name) + len(c.arguments)
	}
	return n
}

// frame is one event of a stream.
type frame struct {
	data []byte
	// content is how many of the turn's content bytes the event carries.
	content int
	// ping marks a sign of life, which is no event of the answer.
	ping bool
	// closing marks the first event after all content, in front of which an in-band error comes.
	closing bool
}
