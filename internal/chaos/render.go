package chaos

import (
	"bytes"
	"encoding/json"
	"unicode"
	"unicode/utf8"
)

// argumentCharacters is how many characters of a call's arguments one event carries by default.
const argumentCharacters = 8

// compact encodes a value of this package's own as JSON without escaping HTML, as the real APIs do.
func compact(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("chaos: own value does not encode: " + err.Error())
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// indented encodes like compact, for people to read.
func indented(v any) []byte {
	var b bytes.Buffer
	if err := json.Indent(&b, compact(v), "", "  "); err != nil {
		panic("chaos: own JSON does not indent: " + err.Error())
	}
	return b.Bytes()
}

// words splits a text in front of each word, so that the parts joined are the text; with n > 0 into n characters each.
func words(text string, n int) []string {
	if n > 0 {
		return pieces(text, n)
	}
	var out []string
	start, inWord := 0, false
	for i, c := range text {
		space := unicode.IsSpace(c)
		if space && inWord {
			out = append(out, text[start:i])
			start = i
		}
		inWord = !space
	}
	if start < len(text) {
		out = append(out, text[start:])
	}
	return out
}

// pieces splits a text into n characters each.
func pieces(text string, n int) []string {
	var out []string
	for len(text) > 0 {
		end := 0
		for i := 0; i < n && end < len(text); i++ {
			_, size := utf8.DecodeRuneInString(text[end:])
			end += size
		}
		out = append(out, text[:end])
		text = text[end:]
	}
	return out
}
