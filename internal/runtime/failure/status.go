package failure

import "net/http"

// statusVerdict is stage 5. A number inside the body is nearer to the fault than the status of a gateway in front of it.
// A generic code of the body stands where the status adds nothing to it.
func statusVerdict(generic verdict, f Facts, body errorBody) verdict {
	status := f.Status
	if body.status != 0 {
		status = body.status
	}
	v := verdict{}
	switch {
	case status >= 300 && status <= 399:
		return verdict{kind: Unknown, sub: SubConfiguration, firm: true,
			message: "the endpoint answered with a redirect, which is never followed; set the provider's baseURL to the final address"}
	case status == http.StatusUnauthorized:
		v.kind = AuthError
	case status == http.StatusPaymentRequired:
		v.kind = Billing
	case status == http.StatusForbidden, status == http.StatusUnavailableForLegalReasons:
		v.kind = PermissionDenied
	case status == http.StatusNotFound, status == http.StatusGone:
		v.kind = ModelNotFound
	case status == http.StatusRequestTimeout:
		v.kind = Timeout
	case status == http.StatusGatewayTimeout && !body.html:
		v.kind = Timeout
	case status == http.StatusConflict, status == http.StatusFailedDependency:
		v.kind = ServerError
	case status == http.StatusRequestEntityTooLarge:
		v.kind, v.sub = ContextLengthExceeded, SubBytes
	case status == http.StatusTooManyRequests:
		v.kind = RateLimited
	case status == statusSiteOverloaded:
		v.kind = Overloaded
	case generic.kind != "":
		return generic
	case status >= 500:
		v.kind = ServerError
	case isRequestFault(status) && !body.html:
		v.kind = InvalidRequest
	case f.InBand != nil:
		// An error event without any code: the provider broke off by itself, after it had accepted the request.
		v.kind = ServerError
	}
	return v
}

// statusSiteOverloaded is Anthropic's "overloaded".
const statusSiteOverloaded = 529

// isRequestFault tells the statuses that blame the body. HTML with one of them comes from a gateway that never passed
// the request on, and stays Unknown.
func isRequestFault(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity:
		return true
	}
	return false
}
