package openwrt

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/site/sitetest"
)

// TestDownHangs proves that a device that lets us in, and whose shell then hangs, is given up when
// it is to become what it was, and that the error names it and says what to do there.
func TestDownHangs(t *testing.T) {
	for _, hangs := range []string{"[ ! -e", "'down'"} {
		port := sitetest.Serve(t, func(command string, _ io.Reader, out, _ io.Writer) int {
			if strings.Contains(command, hangs) {
				select {}
			}
			_, _ = io.WriteString(out, "yes\n")
			return 0
		})
		u, err := site.UserOf(os.Getuid())
		if err != nil {
			t.Fatal(err)
		}
		login, err := site.Dial(t.Context(), &site.Machine{Name: "ap", Host: "127.0.0.1", Port: port}, u)
		if err != nil {
			t.Fatal(err)
		}
		defer login.Close()
		undo := patience.DeviceDown.Be(200 * time.Millisecond)
		_, err = Plan{ID: "ID"}.Down(t.Context(), login)
		if undo(); err == nil || !strings.HasPrefix(err.Error(), "ap: its shell has not made it what it was within 200ms; ") || !strings.Contains(err.Error(), "sh /var/run/trivet-ID/switch.sh down") {
			t.Errorf("%s: %v", hangs, err)
		}
	}
}

// FuzzStatus proves that whatever a device says of its controllers is read, or an error.
func FuzzStatus(f *testing.F) {
	f.Add(`{"data": [["tcp:10.0.0.1:6653", true, "master", ["map", [["last_error", "no route"]]]]]}`)
	f.Add(`{"data": [["x", false, ["set", []], ["map", []]], []]}`)
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := readStatus(text); err == nil && len(got) > strings.Count(text, "[") || err != nil && got != nil {
			t.Errorf("%d controllers, %v", len(got), err)
		}
	})
}
