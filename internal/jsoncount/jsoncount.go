// Package jsoncount counts values in untrusted JSON before it is decoded: two bytes of it can
// become a thousand in memory, so a limit on its size alone is not enough.
package jsoncount

// Counter counts the values in one or several texts, which may come in parts. It does not validate:
// for invalid JSON the counts are too high, or right up to the error.
type Counter struct {
	Values  int // objects, lists, and what follows a comma
	Entries int // commas between elements of lists, or of objects, in the outermost object

	depth           int
	inText, escaped bool
}

// Add counts the next part.
func (c *Counter) Add(part []byte) {
	for _, b := range part {
		switch {
		case c.escaped:
			c.escaped = false
		case c.inText && b == '\\':
			c.escaped = true
		case b == '"':
			c.inText = !c.inText
		case c.inText:
		case b == '{' || b == '[':
			c.depth++
			c.Values++
		case b == '}' || b == ']':
			c.depth--
		case b == ',':
			c.Values++
			if c.depth == 2 {
				c.Entries++
			}
		}
	}
}
