package formats

// clipped is how many characters of a text in a file a message quotes.
const clipped = 60

// Clip keeps messages short even if a text in a file is not.
func Clip(s string) string {
	if r := []rune(s); len(r) > clipped {
		return string(r[:clipped]) + "…"
	}
	return s
}
