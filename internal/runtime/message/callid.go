package message

import (
	"crypto/sha256"
	"encoding/binary"
	"math/big"
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// callIDLength is the only length that every dialect accepts: Mistral demands exactly nine alphanumerics.
const callIDLength = 9

// CallID mints the id of the index-th call (from 0) of a turn. It is a hash and never a cut of a vendor's id, so ids
// with a common prefix stay apart; it is deterministic, so a replay mints the same. attempt is 0 except when the id is
// already taken in the run, which the caller checks.
func CallID(runUID string, turn, index, attempt int) string {
	h := sha256.New()
	h.Write([]byte(runUID))
	var n [24]byte
	binary.BigEndian.PutUint64(n[0:], uint64(turn))
	binary.BigEndian.PutUint64(n[8:], uint64(index))
	binary.BigEndian.PutUint64(n[16:], uint64(attempt))
	h.Write(n[:])

	number, base, digit := new(big.Int).SetBytes(h.Sum(nil)), big.NewInt(int64(len(base62))), new(big.Int)
	id := make([]byte, callIDLength)
	for i := range id {
		number.DivMod(number, base, digit)
		id[i] = base62[digit.Int64()]
	}
	return string(id)
}
