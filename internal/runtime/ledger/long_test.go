//go:build long

package ledger_test

// rounds chooses how often a randomised test goes round: here the long way.
func rounds(_, long int) int { return long }
