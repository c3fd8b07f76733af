package local

import (
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/inside/insidetest"
	"trivet.dev/trivet/target/local/delayline"
	"trivet.dev/trivet/topology"
)

// TestClaimSpeed proves that a link's TAP device claims what leaves it, in whole Mbit/s and never
// none, and without a bandwidth what veth devices do.
func TestClaimSpeed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes a device")
	}
	err := inside.File(insidetest.New(t), func() error {
		fd, err := delayline.OpenTap("tap0", true)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, c := range []struct {
			rate topology.Rate
			want uint32
		}{{10e6, 10}, {1.4e6, 1}, {500, 1}, {2.5e9, 2500}, {0, vethSpeed}} {
			if err := claimSpeed("tap0", c.rate); err != nil {
				return err
			}
			settings, _, err := linkSettings("tap0")
			if err != nil {
				return err
			}
			if got := binary.NativeEndian.Uint32(settings[linkSpeedAt:]); got != c.want {
				t.Errorf("%v: %d Mbit/s, not %d", c.rate, got, c.want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
