package failure

import (
	"net/http"
	"strings"
)

// bodyVerdict is stage 3: the first certain code decides, else the first generic one is kept for the later stages.
func bodyVerdict(b errorBody, header http.Header) verdict {
	if b.moderated {
		return verdict{kind: ContentFiltered, firm: true}
	}
	var generic verdict
	for _, code := range b.words(header) {
		v, ok := codeVerdict(normalize(code))
		if !ok {
			continue
		}
		if v.kind == ContextLengthExceeded {
			v.limit, v.requested = overflowNumbers(b)
		}
		if v.firm {
			return v
		}
		if generic.kind == "" {
			generic = v
		}
	}
	return generic
}

// normalize makes one spelling of rate_limit_error, RateLimitError and rate-limit-error.
func normalize(code string) string {
	if len(code) > maxCode {
		code = code[:maxCode]
	}
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "", ".", "").Replace(code))
}

// codeVerdict knows the codes of the providers' error references. Codes marked generic name a family of faults only.
func codeVerdict(code string) (verdict, bool) {
	switch code {
	case "throttlingexception", "throttling", "toomanyrequestsexception", "openrouterinflightbudget",
		"upstreamprovidersharedpool", "quotaperminute":
		return verdict{kind: RateLimited, firm: true}, true
	case "ratelimitexceeded", "ratelimiterror", "ratelimit", "resourceexhausted", "toomanyrequests", "tokens", "requests":
		return verdict{kind: RateLimited}, true
	case "slowdown", "overloadederror", "overloaded", "provideroverloaded", "engineoverloaded", "serveroverloaded",
		"unavailable", "serviceunavailable", "serviceunavailableerror", "serviceunavailableexception",
		"compactionunavailable", "insufficientsystemresource":
		return verdict{kind: Overloaded, firm: true}, true
	case "modelnotreadyexception":
		return verdict{kind: Overloaded, sub: SubWarming, firm: true}, true
	case "insufficientquota", "organizationspendlimitexceeded", "projectspendlimitexceeded", "enforcedspendlimitreached",
		"contractspendlimitreached":
		return verdict{kind: QuotaExhausted, firm: true, noHint: true}, true
	case "usagelimitreached", "servicequotaexceededexception", "quotaperday":
		return verdict{kind: QuotaExhausted, firm: true}, true
	case "billingerror", "paymentrequired", "paymentrequirederror", "openroutercredits", "openrouterkeylimit",
		"insufficientbalance", "billinghardlimitreached", "billingnotactive":
		return verdict{kind: Billing, firm: true}, true
	case "modelnotfound", "modelnotfounderror", "deploymentnotfound":
		return verdict{kind: ModelNotFound, firm: true}, true
	case "notfounderror", "notfound", "resourcenotfoundexception":
		return verdict{kind: ModelNotFound}, true
	case "authenticationerror", "invalidapikey", "incorrectapikey", "apikeyinvalid", "unauthenticated", "requestexpired",
		"expiredtokenexception", "incompletesignature", "invalidsignatureexception", "unrecognizedclientexception",
		"invalidclienttokenid":
		return verdict{kind: AuthError, firm: true}, true
	case "permissionerror", "permissiondenied", "accessdenied", "accessdeniedexception", "organizationonhold",
		"unsupportedcountryregionterritory", "ftuformnotfilled", "consumerinvalid", "failedprecondition":
		return verdict{kind: PermissionDenied, firm: true}, true
	case "invalidrequesterror", "invalidrequest", "badrequesterror", "badrequest", "invalidargument",
		"validationexception", "validationerror", "unprocessableentity", "unprocessableentityerror":
		return verdict{kind: InvalidRequest}, true
	case "contextlengthexceeded", "exceedcontextsizeerror", "contextwindowexceeded":
		return verdict{kind: ContextLengthExceeded, firm: true}, true
	case "requesttoolarge":
		return verdict{kind: ContextLengthExceeded, sub: SubBytes}, true
	case "contentfilter", "contentpolicyviolation", "responsibleaipolicyviolation":
		return verdict{kind: ContentFiltered, firm: true}, true
	case "toolusefailed":
		return verdict{kind: EmptyResponse, sub: SubMalformedToolCall, firm: true}, true
	case "conflicterror", "internalserverexception", "internalfailure", "modelerrorexception", "modelstreamerrorexception":
		return verdict{kind: ServerError, firm: true}, true
	case "servererror", "apierror", "internalservererror", "internalerror", "internal":
		return verdict{kind: ServerError}, true
	case "timeouterror", "timeout", "modeltimeoutexception", "deadlineexceeded", "requesttimeout":
		return verdict{kind: Timeout, firm: true}, true
	}
	return verdict{}, false
}
