package database

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// How values are written to the file, and read.

func dpidText(dpid uint64) string { return fmt.Sprintf("%016x", dpid) }

func dpidOf(text string) (uint64, error) { return strconv.ParseUint(text, 16, 64) }

func hex(n uint64) string { return fmt.Sprintf("%#x", n) }

// seconds is a time as stored, exact to the microsecond; a float64 has no room for more.
func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func timeOf(s float64) time.Time { return time.UnixMicro(int64(math.Round(s * 1e6))) }

// counter is NULL if the switch does not keep it. SQLite's integers end at 2^63-1.
func counter(n uint64) any {
	if n == NoCounter {
		return nil
	}
	return int64(min(n, math.MaxInt64))
}

// number is NULL if unknown.
func number(f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	return f
}

func list(l []string) string {
	if len(l) == 0 {
		return "[]"
	}
	b, _ := json.Marshal(l) // strings can be encoded
	return string(b)
}

func listOf(text string) (l []string, err error) {
	err = json.Unmarshal([]byte(text), &l)
	return l, err
}

// query reads rows on a connection other than the writer's.
func query[R any](d *DB, row func(scan func(...any) error) (R, error), text string, args ...any) (out []R, err error) {
	rows, err := d.read.QueryContext(context.Background(), text, args...)
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", d.path, err)
	}
	defer rows.Close()
	for rows.Next() {
		r, err := row(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("database %s: %w", d.path, err)
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("database %s: %w", d.path, err)
	}
	return out, nil
}
