package budget

import (
	"math"
	"math/bits"
)

// Price is what a million tokens of each sort cost, in micro-USD. The zero value is free.
type Price struct {
	InputMicroUSDPerMTok int64
	// CachedInputMicroUSDPerMTok is for prompt tokens read from the provider's cache.
	CachedInputMicroUSDPerMTok int64
	// CacheWriteMicroUSDPerMTok is for prompt tokens written to the provider's cache.
	CacheWriteMicroUSDPerMTok int64
	// OutputMicroUSDPerMTok is for generated tokens, reasoning included.
	OutputMicroUSDPerMTok int64
}

// NewPrice returns a price in which cache reads and writes cost what other input does, unless they have prices of their
// own.
func NewPrice(input, output int64, cachedInput, cacheWrite *int64) Price {
	p := Price{
		InputMicroUSDPerMTok:       input,
		CachedInputMicroUSDPerMTok: input,
		CacheWriteMicroUSDPerMTok:  input,
		OutputMicroUSDPerMTok:      output,
	}
	if cachedInput != nil {
		p.CachedInputMicroUSDPerMTok = *cachedInput
	}
	if cacheWrite != nil {
		p.CacheWriteMicroUSDPerMTok = *cacheWrite
	}
	return p
}

// Cost returns what the usage costs in micro-USD, rounded up once. Parts that exceed their whole, as some servers report
// them, are charged at their own price and never make the rest negative.
func (p Price) Cost(u Usage) int64 {
	cached := atLeastZero(u.CachedInputTokens)
	written := atLeastZero(u.CacheWriteTokens)
	plain := atLeastZero(u.InputTokens - cached - written)
	var t total
	t.add(plain, p.InputMicroUSDPerMTok)
	t.add(cached, p.CachedInputMicroUSDPerMTok)
	t.add(written, p.CacheWriteMicroUSDPerMTok)
	t.add(atLeastZero(u.OutputTokens), p.OutputMicroUSDPerMTok)
	return t.microUSD()
}

// WorstCase returns the most that a request can cost: nothing is read from the cache, all of the input may be written
// to it, and the answer uses its whole cap.
func (p Price) WorstCase(inputTokens, maxOutputTokens int64) int64 {
	var t total
	t.add(atLeastZero(inputTokens), max(p.InputMicroUSDPerMTok, p.CacheWriteMicroUSDPerMTok, p.CachedInputMicroUSDPerMTok))
	t.add(atLeastZero(maxOutputTokens), p.OutputMicroUSDPerMTok)
	return t.microUSD()
}

const tokensPerPrice = 1_000_000

// total adds token counts times prices in 128 bits: a million tokens at the highest price that the API admits overflow
// 64.
type total struct{ hi, lo uint64 }

func (t *total) add(tokens, price int64) {
	hi, lo := bits.Mul64(uint64(tokens), uint64(atLeastZero(price)))
	var carry uint64
	t.lo, carry = bits.Add64(t.lo, lo, 0)
	t.hi, _ = bits.Add64(t.hi, hi, carry)
}

// microUSD divides by the million, rounds up and saturates.
func (t *total) microUSD() int64 {
	if t.hi >= tokensPerPrice {
		return math.MaxInt64
	}
	q, r := bits.Div64(t.hi, t.lo, tokensPerPrice)
	if r > 0 {
		q++
	}
	if q > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(q)
}

func atLeastZero(n int64) int64 { return max(n, 0) }

// sum adds two counts and saturates instead of overflowing.
func sum(a, b int64) int64 {
	if a > 0 && b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}
