package pipeline

import "trivet.dev/trivet/openflow"

// Interest returns the bits of a packet's key that a translation may look at because of this
// switch, whatever the packet: the fields and longest prefixes that its tables match, those that
// its actions need, and those that its select groups and its learning use. The mask of every
// translation is within the union over the switches that the packet can reach.
func (s *Switch) Interest() Mask {
	s.net.mu.RLock()
	defer s.net.mu.RUnlock()
	var m Mask
	m[wordPort] = ^uint64(0)
	if s.frag == openflow.FragDrop {
		m[wordIP] |= shapeFragment << shapeShift
	}
	if s.standalone {
		m.addLearning()
	}
	for _, p := range s.order {
		if p.vlans != nil {
			m[wordDst] |= reservedMask
			m[wordSrc] |= tagAll
			m[wordTags] |= tagAll << tagsShift
			break
		}
	}
	for _, t := range s.tables {
		if t == nil {
			continue
		}
		for mask := range t.byMask {
			m.Union(&mask)
		}
	}
	for _, p := range s.programs {
		m.addActions(p.apply)
		m.addActions(p.write)
	}
	for _, g := range s.groups {
		for i := range g.desc.Buckets {
			m.addActions(g.desc.Buckets[i].Actions)
		}
		if g.desc.Kind == openflow.GroupTypeSelect {
			m.addHash()
		}
	}
	return m
}

func (m *Mask) addActions(list []openflow.Action) {
	const shapes = uint64(shapeNoL3) << shapeShift
	for i := range list {
		switch a := &list[i]; a.Type {
		case openflow.ActionOutput:
			if a.Port == openflow.PortNormal {
				m.addLearning()
			}
		case openflow.ActionPushVLAN:
			m[wordSrc] |= tagAll
		case openflow.ActionPopVLAN:
			m[wordSrc] |= tagPresent
			m[wordTags] |= tagAll << tagsShift
		case openflow.ActionExperimenter: // checkLarger
			m.addTagged()
		case openflow.ActionDecNwTTL:
			m[wordDst] |= ethTypeMask
			m[wordIP] |= shapes | shapeBadSum<<shapeShift
		case openflow.ActionSetNwTTL, openflow.ActionPopMPLS, openflow.ActionPopPBB,
			openflow.ActionCopyTTLIn, openflow.ActionCopyTTLOut, openflow.ActionSetMPLSTTL:
			m[wordDst] |= ethTypeMask
			m[wordIP] |= shapes
		case openflow.ActionDecMPLSTTL:
			m[wordDst] |= ethTypeMask
			m[wordIP] |= shapes
			m[wordTags] |= mplsTTLMask
		case openflow.ActionSetField:
			m.addNeeds(a.Field.Field)
		}
	}
}

// addTagged adds the bits that say how many tags a packet has.
func (m *Mask) addTagged() {
	m[wordSrc] |= tagPresent
	m[wordTags] |= tagPresent << tagsShift
}

// addNeeds adds the bits that say whether a packet has a field.
func (m *Mask) addNeeds(f openflow.Field) {
	need := &needs[f]
	if f == openflow.FieldVLANVID || f == openflow.FieldVLANPCP {
		m[wordSrc] |= tagPresent
	}
	if need.ethTypes != nil {
		m[wordDst] |= ethTypeMask
		m[wordIP] |= shapeNoL3 << shapeShift
	}
	if need.ipProto != 0 {
		m[wordIP] |= ipProtoMask | shapeNoL4<<shapeShift
	}
	if need.icmpType != 0 {
		m[wordPorts] |= 0xff << 48
		for _, w := range [...]int{wordTarget, wordTarget + 1, wordSHA, wordTHA} {
			m[w] = ^uint64(0)
		}
	}
}

func (m *Mask) addLearning() {
	m[wordSrc] |= ^uint64(tagAll) | tagVID
	m[wordDst] |= ^ethTypeMask
}

func (m *Mask) addHash() {
	m.addLearning()
	m[wordDst] = ^uint64(0)
	m[wordIP] |= ipProtoMask | (shapeFragment|shapeNoL4|shapeNoL3)<<shapeShift
	for w := wordIPv4; w <= wordIPv6Dst+1; w++ {
		m[w] = ^uint64(0)
	}
	m[wordPorts] |= 0xffffffff << 32
}
