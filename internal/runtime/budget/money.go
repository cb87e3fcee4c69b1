package budget

import (
	"fmt"
	"strings"
)

// Dollars formats micro-USD with at least two and at most six decimals, for example 0.0125.
func Dollars(microUSD int64) string {
	sign := ""
	if microUSD < 0 {
		sign, microUSD = "-", -microUSD
	}
	decimals := strings.TrimRight(fmt.Sprintf("%06d", microUSD%1_000_000), "0")
	for len(decimals) < 2 {
		decimals += "0"
	}
	return fmt.Sprintf("%s%d.%s", sign, microUSD/1_000_000, decimals)
}

// USD is Dollars with its currency, for example 1.25 USD.
func USD(microUSD int64) string { return Dollars(microUSD) + " USD" }
