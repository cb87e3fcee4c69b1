package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"belay.dev/belay/internal/runtime/failure"
)

// Prepared is a rendered request for one leg. The same Prepared is sent again when the leg is tried again, so that the
// provider sees identical bytes.
type Prepared struct {
	// SHA256 is the hash over the leg's name, its model and the body, separated by NUL, in hex. It is known before the
	// send, so that the request can be recorded first.
	SHA256 string
	// BodyBytes is the size of the body.
	BodyBytes int
	// InputEstimate is the likely number of prompt tokens, and rather too high than too low.
	InputEstimate int64

	url    *url.URL
	header http.Header
	body   []byte
}

// Prepare renders the request for the target's dialect and checks where and how it would be sent. It is pure. Its errors
// are *failure.Cause; Refused turns one into the attempt that never was.
func (c *Client) Prepare(target Target, req Request) (Prepared, error) {
	dialect, ok := c.dialects[target.Route.Dialect]
	if !ok {
		return Prepared{}, misconfigured("leg %q has the dialect %q, which this version does not speak", target.Leg, target.Route.Dialect)
	}
	target.Secret = strings.TrimSpace(target.Secret)
	if !validHeaderValue(target.Secret) {
		return Prepared{}, failure.Causef(failure.AuthError, "the credential %s has a control character inside; store the bare key", target.Route.Credential())
	}
	rendered, err := dialect.Render(target, req)
	if err != nil {
		return Prepared{}, err
	}
	u, err := endpointURL(target, rendered.Path)
	if err != nil {
		return Prepared{}, err
	}
	header := http.Header{}
	for _, h := range target.Headers {
		if err := CheckHeader(h); err != nil {
			return Prepared{}, misconfigured("the provider of leg %q declares a bad header: %v", target.Leg, err)
		}
		header.Add(h.Name, h.Value)
	}
	for _, h := range rendered.Headers {
		// The provider's own choice stands, for example an API version; it cannot name the credential's header.
		if header.Get(h.Name) == "" {
			header.Set(h.Name, h.Value)
		}
	}
	header.Set("Content-Type", "application/json")
	header.Set("Accept", eventStream)
	header.Set("User-Agent", c.userAgent)
	return Prepared{
		SHA256:        requestHash(target, rendered.Body),
		BodyBytes:     len(rendered.Body),
		InputEstimate: inputEstimate(rendered),
		url:           u,
		header:        header,
		body:          rendered.Body,
	}, nil
}

func requestHash(target Target, body []byte) string {
	h := sha256.New()
	h.Write([]byte(target.Leg + "\x00" + target.Route.Model + "\x00"))
	h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}

// Refused returns the attempt for an error of Prepare: nothing was sent, and nothing is charged.
func (c *Client) Refused(err error) Attempt {
	f := failure.Classify(failure.Facts{Err: err}, c.clock.Now())
	return Attempt{Failure: &f}
}

func canonicalHeader(name string) string { return textproto.CanonicalMIMEHeaderKey(name) }

const (
	// bytesPerToken is below what tokenizers reach on prose (about 4) and on CJK text (3 bytes a character), so that an
	// estimate is not below the likely bill.
	bytesPerToken = 3
	// tokensPerMedia is about what the vendors charge for an image of the largest size that they do not shrink.
	tokensPerMedia = 1600
)

func inputEstimate(r Rendered) int64 {
	return tokensOf(len(r.Body)-r.MediaBytes) + int64(r.Media)*tokensPerMedia
}

func tokensOf(bytes int) int64 { return (int64(bytes) + bytesPerToken - 1) / bytesPerToken }

// charge completes what the provider reported by estimates. An attempt that was refused before it was answered costs
// nothing; one that broke off costs its input and what had been generated.
func charge(reported Usage, input int64, outputBytes int, complete bool) Usage {
	u := reported
	if u.InputTokens == 0 {
		u.InputTokens, u.Estimated = input, true
	}
	if estimate := tokensOf(outputBytes); outputBytes > 0 && (u.OutputTokens == 0 || !complete && estimate > u.OutputTokens) {
		u.OutputTokens, u.Estimated = estimate, true
	}
	if !complete {
		u.Estimated = true
	}
	return u
}
