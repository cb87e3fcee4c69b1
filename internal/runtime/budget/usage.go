// Package budget keeps a run's books: what tokens cost at the leg that served them, what is reserved for a request that
// is under way, and which limit forbids the next one. Money is int64 micro-USD, millionths of a US dollar; there is no
// floating point, and every rounding is up, so that the books are never below the bill.
//
// The package is a pure leaf: it imports the standard library only.
package budget

// Usage counts tokens as the provider bills them.
type Usage struct {
	// InputTokens are all prompt tokens, cached ones included.
	InputTokens int64 `json:"inputTokens"`
	// CachedInputTokens are the part of InputTokens that was read from the provider's cache.
	CachedInputTokens int64 `json:"cachedInputTokens,omitempty"`
	// CacheWriteTokens are the part of InputTokens that was written to the provider's cache.
	CacheWriteTokens int64 `json:"cacheWriteTokens,omitempty"`
	// OutputTokens are all generated tokens, reasoning included.
	OutputTokens int64 `json:"outputTokens"`
	// ReasoningTokens are the part of OutputTokens spent on hidden reasoning.
	ReasoningTokens int64 `json:"reasoningTokens,omitempty"`
	// Estimated marks figures that the provider did not report; they are never below the likely bill.
	Estimated bool `json:"estimated,omitempty"`
}

// Add returns the sum; it is estimated if a part of it is.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		InputTokens:       sum(u.InputTokens, v.InputTokens),
		CachedInputTokens: sum(u.CachedInputTokens, v.CachedInputTokens),
		CacheWriteTokens:  sum(u.CacheWriteTokens, v.CacheWriteTokens),
		OutputTokens:      sum(u.OutputTokens, v.OutputTokens),
		ReasoningTokens:   sum(u.ReasoningTokens, v.ReasoningTokens),
		Estimated:         u.Estimated || v.Estimated,
	}
}

// Tokens are input and output together, the figure that limits.maxTokens bounds.
func (u Usage) Tokens() int64 { return sum(u.InputTokens, u.OutputTokens) }
