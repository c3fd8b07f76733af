package process

// Beginning keeps the first bytes that are written to it, and discards the rest: for the output of
// programs that may write anything, or for ever.
type Beginning struct{ text []byte }

// mostSaid is how many bytes it keeps.
const mostSaid = 4096

func (b *Beginning) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), mostSaid-len(b.text))]...)
	return len(p), nil
}

func (b *Beginning) String() string { return string(b.text) }
