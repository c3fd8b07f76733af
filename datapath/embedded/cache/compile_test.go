package cache

import (
	"testing"

	"trivet.dev/trivet/datapath/embedded/pipeline"
)

// Proves that an entry holds for packets of as many bytes as its translation says: the program
// counts those behind the Ethernet header and the tags.
func TestLargest(t *testing.T) {
	for tags, frame := range [][]byte{
		{12: 8, 13: 0, 60: 0},
		{12: 0x81, 13: 0, 15: 7, 16: 8, 17: 0, 60: 0},
		{12: 0x88, 13: 0xa8, 15: 7, 16: 0x81, 17: 0, 19: 7, 20: 8, 21: 0, 60: 0},
	} {
		var k pipeline.Key
		pipeline.ParseKey(&k, frame, 1)
		c, why := compile(&pipeline.Translation{Largest: 1514}, &k, nil)
		if want := uint32(1500 - 4*tags); c.mtu != want || why != "" {
			t.Errorf("%d tags: %d bytes, want %d (%s)", tags, c.mtu, want, why)
		}
	}
}
