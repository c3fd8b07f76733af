package page

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/internal/lists"
)

// flatten lists what is in a value, with the way to it as its name. Lists of plain values are one
// line.
func flatten(out *[]fact, at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			name := strings.ReplaceAll(key, "_", " ")
			if at == "sysctls" || at == "tools" || strings.HasPrefix(at, "offloads") {
				name = key
			}
			if at != "" {
				name = at + " · " + name
			}
			flatten(out, name, v[key])
		}
	case []any:
		words := lists.Map(v, plain)
		add(out, at, strings.Join(words, "; "))
	default:
		add(out, at, plain(v))
	}
}

func add(out *[]fact, name, value string) {
	if value != "" {
		*out = append(*out, fact{report.Clean(name), report.Clean(value)})
	}
}

func plain(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}
