//go:build !long

package ledger_test

// rounds chooses how often a randomised test goes round: long with the build tag
// of that name.
func rounds(short, _ int) int { return short }
