package verify

// judgeMTU takes the largest packets of a stream, of which so many came.
func judgeMTU(c *Check, s *sample, came int) {
	mtu := int(c.Asked)
	switch {
	case came == 0:
		c.untold("no packet came through it")
	case s.largest >= mtu+ethernet:
		c.set(c.Asked)
	case s.full < mtu+ethernet && s.largest >= s.full:
		c.untold("no way that was tried takes packets of %d bytes", mtu)
	case s.largest == 0:
		c.wrong(0, "no packet of %d bytes came through it", mtu)
	default:
		c.wrong(float64(s.largest-ethernet), "packets of %d bytes come through it, but none of %d", s.largest-ethernet, min(mtu, s.full-ethernet))
	}
}
