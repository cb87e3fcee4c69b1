package failure

const (
	perMinute = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"m","quotaId":"GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}]}`
	perDay    = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"m","quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}`
)

var googleRows = []corpusRow{
	{row: 58, name: "per minute", status: 429,
		body: `{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[` +
			perMinute + `,{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.4s"}]}}`,
		kind: RateLimited, code: "RESOURCE_EXHAUSTED", wait: "34.4s retryDelay"},
	{row: 59, name: "per day", status: 429,
		body: `{"error":{"code":429,"message":"You exceeded your current quota.","status":"RESOURCE_EXHAUSTED","details":[` +
			perDay + `,{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"36000s"}]}}`,
		kind: QuotaExhausted, code: "RESOURCE_EXHAUSTED", wait: "10h0m0s retryDelay"},
	{row: 59, name: "per day and per minute", status: 429,
		body: `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[` + perMinute + `,` + perDay + `]}}`,
		kind: QuotaExhausted, code: "RESOURCE_EXHAUSTED"},
	{row: 61, name: "prepaid credit empty", status: 402,
		body: `{"error":{"code":402,"message":"x","status":"RESOURCE_EXHAUSTED"}}`, kind: Billing, code: "RESOURCE_EXHAUSTED"},
	{row: 62, name: "prepaid credit empty by text", status: 429,
		body: `{"error":{"code":429,"message":"Your prepayment credits are depleted. Please add more.","status":"RESOURCE_EXHAUSTED"}}`,
		kind: Billing, code: "RESOURCE_EXHAUSTED"},
	{row: 64, name: "unavailable", status: 503,
		body: `{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}`,
		kind: Overloaded, code: "UNAVAILABLE"},
	{row: 65, name: "internal", status: 500,
		body: `{"error":{"code":500,"message":"An internal error has occurred.","status":"INTERNAL"}}`, kind: ServerError, code: "INTERNAL"},
	{row: 67, name: "bad key as a 400", status: 400,
		body: `{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}]}}`,
		kind: AuthError, code: "API_KEY_INVALID"},
	{row: 68, name: "failed precondition", status: 400,
		body: `{"error":{"code":400,"message":"User location is not supported for the API use.","status":"FAILED_PRECONDITION"}}`,
		kind: PermissionDenied, code: "FAILED_PRECONDITION"},
	{row: 70, name: "consumer", status: 403,
		body: `{"error":{"code":403,"message":"x","status":"PERMISSION_DENIED","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"CONSUMER_INVALID"}]}}`,
		kind: PermissionDenied, code: "CONSUMER_INVALID"},
	{row: 73, name: "a list with a permission", status: 403,
		body: `[{"error":{"code":403,"message":"x","status":"PERMISSION_DENIED"}}]`, kind: PermissionDenied, code: "PERMISSION_DENIED"},
	{row: 73, name: "a list with a rate", status: 429,
		body: "[{\n  \"error\": {\"code\": 429, \"status\": \"RESOURCE_EXHAUSTED\", \"details\": [{\"@type\":\"x/google.rpc.RetryInfo\",\"retryDelay\":\"7s\"}]}\n}\n]",
		kind: RateLimited, code: "RESOURCE_EXHAUSTED", wait: "7s retryDelay"},
	{row: 80, name: "unavailable in the stream", status: 200,
		inBand: `{"error":{"code":503,"message":"x","status":"UNAVAILABLE","details":[{"@type":"x/google.rpc.RetryInfo","retryDelay":"2s"}]}}`,
		kind:   Overloaded, code: "UNAVAILABLE", wait: "2s retryDelay"},
	{row: 80, name: "a number alone in the stream", status: 200,
		inBand: `{"error":{"code":429,"message":"x"}}`, kind: RateLimited},
}
