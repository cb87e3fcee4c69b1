package budget

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// 2.50, 0.25, 3.125 and 10 USD for a million tokens.
var price = Price{
	InputMicroUSDPerMTok: 2_500_000, CachedInputMicroUSDPerMTok: 250_000,
	CacheWriteMicroUSDPerMTok: 3_125_000, OutputMicroUSDPerMTok: 10_000_000,
}

func TestCostIsWorkedOutPerSortOfTokenAndRoundedUpOnce(t *testing.T) {
	for _, tc := range []struct {
		name  string
		price Price
		usage Usage
		want  int64
	}{
		{"nothing", price, Usage{}, 0},
		{"a million plain input tokens", price, Usage{InputTokens: 1_000_000}, 2_500_000},
		{"a thousand in, a hundred out", price, Usage{InputTokens: 1000, OutputTokens: 100}, 2500 + 1000},
		// 200 plain, 700 cached, 100 written: 500 + 175 + 312.5 micro-USD.
		{"cached and written parts of the input", price, Usage{InputTokens: 1000, CachedInputTokens: 700, CacheWriteTokens: 100}, 988},
		{"reasoning is part of the output", price, Usage{OutputTokens: 100, ReasoningTokens: 90}, 1000},
		{"a fraction is rounded up", Price{InputMicroUSDPerMTok: 1}, Usage{InputTokens: 1}, 1},
		{"two halves are rounded up once", Price{InputMicroUSDPerMTok: 500_000, OutputMicroUSDPerMTok: 500_000}, Usage{InputTokens: 1, OutputTokens: 1}, 1},
		{"a cached part larger than the whole", price, Usage{InputTokens: 100, CachedInputTokens: 200}, 50},
		{"negative counts are none", price, Usage{InputTokens: -5, OutputTokens: -5}, 0},
		{"free", Price{}, Usage{InputTokens: 1 << 40}, 0},
		{"beyond what fits", Price{InputMicroUSDPerMTok: math.MaxInt64}, Usage{InputTokens: math.MaxInt64}, math.MaxInt64},
		{"a trillion for a million, a hundred million tokens", Price{InputMicroUSDPerMTok: 1_000_000_000_000}, Usage{InputTokens: 100_000_000}, 100_000_000_000_000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.price.Cost(tc.usage); got != tc.want {
				t.Errorf("cost = %d, want %d micro-USD", got, tc.want)
			}
		})
	}
}

func TestUnsetCachePricesAreThePriceOfInput(t *testing.T) {
	cached := int64(0)
	if diff := cmp.Diff(Price{7, 0, 7, 9}, NewPrice(7, 9, &cached, nil)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Price{7, 7, 7, 9}, NewPrice(7, 9, nil, nil)); diff != "" {
		t.Error(diff)
	}
}

func TestTheWorstCaseAssumesTheDearestInputAndAWholeAnswer(t *testing.T) {
	// 1000 tokens written to the cache at 3.125, 500 out at 10.
	if got, want := price.WorstCase(1000, 500), int64(3125+5000); got != want {
		t.Errorf("worst case = %d, want %d", got, want)
	}
}

func TestReserveAndSettle(t *testing.T) {
	a := &Account{Limits: Limits{MaxCostMicroUSD: 20_000}}
	reserved, over := a.Reserve("a", price, 1000, 500)
	if over != nil || reserved.CostMicroUSD != 8125 || !reserved.Usage.Estimated {
		t.Fatalf("reserved %+v, %+v", reserved, over)
	}
	charged := a.Settle("a", price, Usage{InputTokens: 1000, OutputTokens: 100}, true)
	if charged.CostMicroUSD != 3500 || a.Total.CostMicroUSD != 3500 || a.Open != nil {
		t.Errorf("charged %+v, total %+v, open %+v", charged, a.Total, a.Open)
	}
}

func TestARequestIsRefusedWhenItsWorstCaseExceedsALimit(t *testing.T) {
	for _, tc := range []struct {
		name   string
		limits Limits
		limit  string
		says   string
	}{
		{"cost", Limits{MaxCostMicroUSD: 8124}, "limits.maxCostMicroUSD", "0.008125 USD"},
		{"tokens", Limits{MaxTokens: 1499}, "limits.maxTokens", "1500 tokens"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &Account{Limits: tc.limits}
			_, over := a.Reserve("a", price, 1000, 500)
			if over == nil || over.Reason != ReasonBudgetExceeded || over.Limit != tc.limit || !strings.Contains(over.Message, tc.says) {
				t.Fatalf("got %+v", over)
			}
			if a.Open != nil || a.Total != (Charge{}) {
				t.Errorf("a refused request left %+v, %+v", a.Open, a.Total)
			}
		})
	}
	exact := &Account{Limits: Limits{MaxCostMicroUSD: 8125, MaxTokens: 1500}}
	if _, over := exact.Reserve("a", price, 1000, 500); over != nil {
		t.Errorf("a request that fits exactly was refused: %+v", over)
	}
}

func TestTheAffordableAnswerIsTheLargestThatReserveGrants(t *testing.T) {
	for _, tc := range []struct {
		name   string
		limits Limits
		want   int64
	}{
		{"no limit", Limits{}, 4000},
		{"tokens", Limits{MaxTokens: 1300}, 300},
		// 3125 for the input, 6875 left at 10 a token.
		{"cost", Limits{MaxCostMicroUSD: 10_000}, 687},
		{"not even the input", Limits{MaxCostMicroUSD: 3000}, 0},
		{"not even the input, in tokens", Limits{MaxTokens: 900}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &Account{Limits: tc.limits}
			got := a.Affordable(price, 1000, 4000)
			if got != tc.want {
				t.Fatalf("affordable = %d, want %d", got, tc.want)
			}
			if got > 0 {
				if _, over := a.Reserve("a", price, 1000, got); over != nil {
					t.Errorf("but Reserve refuses it: %+v", over)
				}
			}
			if got > 0 && got < 4000 {
				a.Open = nil
				if _, over := a.Reserve("a", price, 1000, got+1); over == nil {
					t.Error("but one more token is granted too")
				}
			}
		})
	}
}

func TestARequestLostInACrashIsChargedInFull(t *testing.T) {
	a := &Account{}
	if _, over := a.Reserve("a", price, 1000, 500); over != nil {
		t.Fatal(over)
	}
	a.Lose()
	want := []LegCharge{{Leg: "a", Requests: 1, Failed: 1, Charge: Charge{Usage: Usage{InputTokens: 1000, OutputTokens: 500, Estimated: true}, CostMicroUSD: 8125}}}
	if diff := cmp.Diff(want, a.Legs); diff != "" {
		t.Error(diff)
	}
	a.Lose()
	if a.Total.CostMicroUSD != 8125 {
		t.Error("a request was lost twice")
	}
}

func TestEachLegIsChargedAtItsOwnPrice(t *testing.T) {
	a := &Account{}
	a.Settle("a", price, Usage{InputTokens: 1000}, false)
	a.Settle("b", Price{OutputMicroUSDPerMTok: 1_000_000}, Usage{InputTokens: 1000, OutputTokens: 10}, true)
	a.Settle("a", price, Usage{InputTokens: 1000}, true)
	want := []LegCharge{
		{Leg: "a", Requests: 2, Failed: 1, Charge: Charge{Usage: Usage{InputTokens: 2000}, CostMicroUSD: 5000}},
		{Leg: "b", Requests: 1, Charge: Charge{Usage: Usage{InputTokens: 1000, OutputTokens: 10}, CostMicroUSD: 10}},
	}
	if diff := cmp.Diff(want, a.Legs); diff != "" {
		t.Error(diff)
	}
	if a.Total.CostMicroUSD != 5010 || a.Total.Usage.Tokens() != 3010 {
		t.Errorf("total %+v", a.Total)
	}
}

func TestTheLimitOfTurns(t *testing.T) {
	a := &Account{Limits: Limits{MaxTurns: 2}}
	for range 2 {
		if over := a.MayTurn(); over != nil {
			t.Fatalf("refused early: %+v", over)
		}
		a.Turn()
	}
	if over := a.MayTurn(); over == nil || over.Reason != ReasonMaxTurnsReached {
		t.Errorf("after two turns: %+v", over)
	}
	spent := &Account{Limits: Limits{MaxTokens: 10}, Total: Charge{Usage: Usage{InputTokens: 10}}}
	if over := spent.MayTurn(); over == nil || over.Limit != "limits.maxTokens" {
		t.Errorf("with all tokens spent: %+v", over)
	}
	none := &Account{Turns: 1 << 30, Total: Charge{CostMicroUSD: 1 << 60}}
	if over := none.MayTurn(); over != nil {
		t.Errorf("without limits: %+v", over)
	}
}

func TestMoneyReadsLikeMoney(t *testing.T) {
	for micro, want := range map[int64]string{0: "0.00 USD", 1_250_000: "1.25 USD", 12_500: "0.0125 USD", 1: "0.000001 USD", 100_000_000: "100.00 USD", -500_000: "-0.50 USD"} {
		if got := USD(micro); got != want {
			t.Errorf("USD(%d) = %q, want %q", micro, got, want)
		}
	}
}
