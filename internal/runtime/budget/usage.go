// Package budget counts what a run spends: tokens as providers bill them, and their price in millionths of a US dollar.
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
		InputTokens:       u.InputTokens + v.InputTokens,
		CachedInputTokens: u.CachedInputTokens + v.CachedInputTokens,
		CacheWriteTokens:  u.CacheWriteTokens + v.CacheWriteTokens,
		OutputTokens:      u.OutputTokens + v.OutputTokens,
		ReasoningTokens:   u.ReasoningTokens + v.ReasoningTokens,
		Estimated:         u.Estimated || v.Estimated,
	}
}
