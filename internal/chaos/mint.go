package chaos

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
)

// mint makes ids and signatures. Those of one seed are always the same; those of another seed are never valid here.
type mint struct{ key []byte }

// newMint returns the mint of a seed; 0 is a random one.
func newMint(seed uint64) mint {
	key := make([]byte, 8)
	binary.BigEndian.PutUint64(key, seed)
	if seed == 0 {
		key = make([]byte, 32)
		_, _ = rand.Read(key) // never fails, as of Go 1.24
	}
	return mint{key}
}

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// id returns a prefix and n characters of base 62 that belong to this leg, request and index.
func (m mint) id(prefix string, n int, leg string, ordinal uint64, index int) string {
	out := []byte(prefix)
	for block := 0; len(out) < len(prefix)+n; block++ {
		for _, b := range m.sum(fmt.Sprintf("id\x00%s\x00%s\x00%d\x00%d\x00%d", prefix, leg, ordinal, index, block)) {
			// Bytes beyond the last multiple of 62 would favour the first characters.
			if b < 248 && len(out) < len(prefix)+n {
				out = append(out, base62[b%62])
			}
		}
	}
	return string(out)
}

// sign returns the signature of a thinking text; it holds for one leg and model.
func (m mint) sign(leg, model, text string) string {
	return base64.StdEncoding.EncodeToString(m.sum("thinking\x00" + leg + "\x00" + model + "\x00" + text))
}

// seal returns the opaque form of a hidden thinking text: its signature and a keystream over it.
func (m mint) seal(leg, model, text string) string {
	tag := m.sum("redacted\x00" + leg + "\x00" + model + "\x00" + text)
	return base64.StdEncoding.EncodeToString(append(tag, m.cover(tag, []byte(text))...))
}

// sealed tells whether a blob is one of this mint's for the leg and model.
func (m mint) sealed(leg, model, blob string) bool {
	raw, err := base64.StdEncoding.DecodeString(blob)
	if err != nil || len(raw) < sha256.Size {
		return false
	}
	tag, text := raw[:sha256.Size], m.cover(raw[:sha256.Size], raw[sha256.Size:])
	return hmac.Equal(tag, m.sum("redacted\x00"+leg+"\x00"+model+"\x00"+string(text)))
}

func (m mint) cover(tag, data []byte) []byte {
	out := make([]byte, len(data))
	for i := range data {
		if i%sha256.Size == 0 {
			tag = m.sum("cover\x00" + string(tag))
		}
		out[i] = data[i] ^ tag[i%sha256.Size]
	}
	return out
}

func (m mint) sum(s string) []byte {
	h := hmac.New(sha256.New, m.key)
	h.Write([]byte(s))
	return h.Sum(nil)
}
