package failure

import (
	"fmt"
	"time"
)

// describe says what happened and what to do, in our words.
func describe(f Failure) string {
	text := kindText(f)
	if f.HTTPStatus != 0 {
		text += fmt.Sprintf(" (HTTP %d)", f.HTTPStatus)
	}
	if f.Wait != nil {
		text += fmt.Sprintf("; the provider asks to come back in %s", f.Wait.Duration.Round(time.Millisecond))
	}
	return text
}

func kindText(f Failure) string {
	switch f.Kind {
	case Network:
		return "the connection to the endpoint failed"
	case Timeout:
		return "the request timed out at the provider or a gateway"
	case ServerError:
		return "the provider failed"
	case StreamTruncated:
		return "the answer ended before it was complete"
	case StreamMalformed:
		return "the answer is not in the expected format"
	case StreamStalled:
		return "the answer stalled"
	case RateLimited:
		return "the rate limit is reached"
	case Overloaded:
		if f.Sub == SubWarming {
			return "the provider is still loading the model"
		}
		return "the provider is overloaded"
	case QuotaExhausted:
		return "the quota or spend limit is used up"
	case Billing:
		return "the account has no credit; add credit at the provider"
	case ModelNotFound:
		return "the endpoint does not serve this model; check the leg's model and the provider's baseURL"
	case AuthError:
		return "the credential was refused; check the provider's secret"
	case PermissionDenied:
		return "the credential may not use this model or endpoint"
	case InvalidRequest:
		if f.Sub == SubHistoryShape {
			return "the provider refused the shape of the conversation"
		}
		return "the provider refused the request as invalid; check the leg's parameters"
	case ContextLengthExceeded:
		return overflowText(f)
	case OutputTruncated:
		return "the answer was cut by its output limit"
	case ContentFiltered:
		return "the provider's content filter withheld the prompt or the answer"
	case EmptyResponse:
		if f.Sub == SubMalformedToolCall {
			return "the model's tool call could not be parsed by the provider"
		}
		return "the answer has neither text nor tool calls"
	case Cancelled:
		return "the attempt was cancelled by the run"
	case Unknown:
		return "the provider answered with an unknown failure"
	}
	return "the provider answered with an unknown failure"
}

func overflowText(f Failure) string {
	text := "the request is larger than the model's context window"
	switch f.Sub {
	case SubExceedsRateBucket:
		text = "the request is larger than the whole rate limit allows at once"
	case SubOutputReservation:
		text = "the input fits the context window, but not together with the reserved output"
	case SubBytes:
		text = "the request is larger in bytes than the provider accepts"
	case SubMalformedToolCall, SubWarming, SubHistoryShape, SubConfiguration:
	}
	if f.Limit > 0 && f.Requested > 0 {
		text += fmt.Sprintf(": %d tokens of %d", f.Requested, f.Limit)
	}
	return text
}
