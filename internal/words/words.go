// Package words writes what people read.
package words

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Plural counts things: "1 switch", "2 switches", "0 links". what is one of them, and may be several words of which
// the last is counted.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	for _, end := range []string{"s", "x", "ch", "sh"} {
		if strings.HasSuffix(what, end) {
			return fmt.Sprintf("%d %ses", n, what)
		}
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// JSON says what is wrong with JSON that could not be read. Go's own words for a word that is none ("invalid character 'o' in literal
// null (expecting 'u')") guess at what nobody meant, and its types are nobody else's.
func JSON(err error) error {
	text, _, guess := strings.Cut(err.Error(), " in literal ")
	if !guess {
		text, _, guess = strings.Cut(text, " looking for beginning of value")
	}
	var kind *json.UnmarshalTypeError
	switch {
	case guess:
		return fmt.Errorf("this is not JSON: %s", text)
	case errors.As(err, &kind):
		at := "the value"
		if kind.Field != "" {
			at = kind.Field
		}
		return fmt.Errorf("%s must be %s, not %s", at, jsonKinds[kind.Type.Kind()], kind.Value)
	case errors.Is(err, io.ErrUnexpectedEOF) || text == "unexpected end of JSON input":
		return errors.New("this is not JSON: it ends too early")
	}
	return err
}

var jsonKinds = map[reflect.Kind]string{reflect.Struct: "an object", reflect.Map: "an object", reflect.Slice: "a list", reflect.Array: "a list",
	reflect.String: "a string", reflect.Bool: "true or false", reflect.Float64: "a number", reflect.Float32: "a number",
	reflect.Int: "a whole number", reflect.Int64: "a whole number", reflect.Int32: "a whole number", reflect.Uint64: "a whole number from 0",
	reflect.Uint32: "a whole number from 0", reflect.Uint16: "a number from 0 to 65535", reflect.Uint8: "a number from 0 to 255"}
