package budget

import "testing"

func TestDollarsHaveAtLeastCentsAndNoDigitTooMany(t *testing.T) {
	for microUSD, want := range map[int64]string{
		0: "0.00", 1: "0.000001", 10_000: "0.01", 12_500: "0.0125", 100_000: "0.10", 1_000_000: "1.00", 1_234_560: "1.23456", 123_456_789: "123.456789",
	} {
		if got := Dollars(microUSD); got != want {
			t.Errorf("%d micro-USD are %s, want %s", microUSD, got, want)
		}
	}
}
