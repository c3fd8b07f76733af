package pipeline

import (
	"trivet.dev/trivet/openflow"
)

// actions executes a list of actions in its order. It says whether the packet goes on; one with an
// invalid TTL does not.
func (t *translator) actions(list []openflow.Action, c *scope) bool {
	for i := range list {
		if !t.action(&list[i], c) {
			return false
		}
	}
	return true
}

func (t *translator) action(a *openflow.Action, c *scope) bool {
	switch a.Type {
	case openflow.ActionOutput:
		t.output(a, c)
	case openflow.ActionGroup:
		t.group(a.Group, c)
	case openflow.ActionSetQueue:
		t.st.queue = a.Queue
	case openflow.ActionSetField:
		t.setField(a)
	case openflow.ActionDecNwTTL:
		if !t.ip() {
			break
		}
		if t.lacks(shapeBadSum) { // as routers do (RFC 1812, section 5.2.2); the error would stay
			return false
		}
		if !t.decTTL() {
			t.controller(c, openflow.ReasonInvalidTTL, openflow.MaxLenNoBuffer)
			return false
		}
	case openflow.ActionSetNwTTL:
		if t.ip() {
			t.st.key.SetTTL(a.TTL)
			t.st.ttlSet = true
		}
	case openflow.ActionDecMPLSTTL, openflow.ActionSetMPLSTTL:
		if t.mpls() && !t.setMPLSTTL(a) {
			t.controller(c, openflow.ReasonInvalidTTL, openflow.MaxLenNoBuffer)
			return false
		}
	case openflow.ActionPushVLAN:
		t.pushVLAN(a.EtherType)
	case openflow.ActionPopVLAN:
		t.popVLAN()
	case openflow.ActionPopMPLS, openflow.ActionCopyTTLOut, openflow.ActionCopyTTLIn:
		if t.mpls() {
			t.structural(a, "what is under a label is looked at")
		}
	case openflow.ActionPopPBB:
		t.look(wordDst, ethTypeMask)
		if t.st.key.EthType() == openflow.EthTypePBB {
			t.structural(a, "what is under a service tag is looked at")
		}
	case openflow.ActionExperimenter:
		t.checkLarger(a)
	case openflow.ActionPushMPLS, openflow.ActionPushPBB:
		t.structural(a, "a header is pushed that a cache does not know")
	}
	return !t.stopped()
}

// checkLarger sets metadata if the packet is longer than the action says. A translation only holds
// for packets that are not longer, which most are.
func (t *translator) checkLarger(a *openflow.Action) {
	limit, bit, _ := a.AsCheckPacketLarger()
	st := &t.st
	st.key[wordMeta] &^= 1 << bit
	switch grown := int(st.length()); {
	case t.dynamic && t.longest+grown > int(limit):
		st.key[wordMeta] |= 1 << bit
	case !t.dynamic:
		t.out.Largest = min(t.out.Largest, int(limit)-grown)
		t.out.Mask.addTagged() // sizes without tags depend on how many there are
	}
}

// decTTL decrements the TTL, and says whether it was above 1.
func (t *translator) decTTL() bool {
	st, ttl := &t.st, t.st.key.TTL()
	if !st.ttlSet {
		// The packet's own TTL was ttl + st.ttlDec.
		if ttl <= 1 {
			t.out.TTLMax = min(t.out.TTLMax, st.ttlDec+1)
			return false
		}
		t.out.TTLMin = max(t.out.TTLMin, st.ttlDec+2)
		st.ttlDec++
	}
	if ttl <= 1 {
		return false
	}
	st.key.SetTTL(ttl - 1)
	return true
}

func (t *translator) setMPLSTTL(a *openflow.Action) bool {
	st, ttl := &t.st, a.TTL
	if a.Type == openflow.ActionDecMPLSTTL {
		t.look(wordTags, mplsTTLMask)
		if ttl = uint8(st.key[wordTags]); ttl <= 1 {
			return false
		}
		ttl--
	}
	st.key[wordTags] = st.key[wordTags]&^mplsTTLMask | uint64(ttl)
	st.known[wordTags] |= mplsTTLMask
	st.mplsTTL = true
	return true
}

func (t *translator) output(a *openflow.Action, c *scope) {
	s := c.sw
	t.read(s, ReadPorts)
	in := t.st.key.inPort()
	switch a.Port {
	case openflow.PortController:
		why := openflow.ReasonAction
		if c.miss {
			why = openflow.ReasonNoMatch
		}
		t.controller(c, why, a.MaxLen)
	case openflow.PortInPort:
		if p := s.ports[in]; p != nil {
			t.transmit(p)
		}
	case openflow.PortAll, openflow.PortFlood:
		t.flood(s, a.Port == openflow.PortFlood)
	case openflow.PortNormal:
		t.normal(s)
	case openflow.PortTable:
		if c.tables {
			t.pipeline(s)
		}
	default:
		if p := s.ports[a.Port]; p != nil && a.Port != in {
			t.transmit(p)
		}
	}
}

// flood sends the packet out by all ports except the ingress. With once, it uses only ports that
// are not blocked, so that each network gets the packet once.
func (t *translator) flood(s *Switch, once bool) {
	in := t.st.key.inPort()
	for _, p := range s.order {
		if p.desc.Number == in || once && p.desc.State&openflow.PortStateBlocked != 0 {
			continue
		}
		if t.transmit(p); t.stopped() {
			return
		}
	}
}

// normal forwards as a switch without OpenFlow does: by where addresses have been learned.
func (t *translator) normal(s *Switch) {
	k := &t.st.key
	in := k.inPort()
	if p := s.ports[in]; p != nil && p.desc.State&openflow.PortStateBlocked != 0 {
		return
	}
	t.look(wordSrc, ^uint64(tagAll)|tagVID)
	t.look(wordDst, ^ethTypeMask)
	vlan := k.tag() & tagVID
	src, dst := station{vlan, k[wordSrc] >> 16}, station{vlan, k[wordDst] >> 16}
	if s.ports[in] != nil && !isGroup(src.mac) {
		if seen := s.learned.see(src, in, t.now); seen != nil {
			t.credit(&seen.Counter)
		} else if t.dynamic {
			s.learned.learn(src, in, t.now)
			s.touch(ReadPlaces)
		} else {
			t.slow("an address is to be learned")
			return
		}
	}
	t.read(s, ReadPlaces)
	port, _, ok := s.learned.find(dst, t.now)
	if isGroup(dst.mac) || !ok {
		t.flood(s, true)
		return
	}
	if p := s.ports[port]; p != nil && port != in && p.desc.State&openflow.PortStateBlocked == 0 {
		t.transmit(p)
	}
}

// group passes copies of the packet to buckets. Actions after this one see the packet as it was
// before, whatever happens to the copies.
func (t *translator) group(number uint32, c *scope) {
	s := c.sw
	t.read(s, ReadGroups)
	g := s.groups[number]
	if g == nil || c.depth > maxGroupDepth {
		return
	}
	t.credit(&g.Counter)
	switch g.desc.Kind {
	case openflow.GroupTypeSelect:
		t.read(s, ReadPorts)
		t.bucket(g, s.choose(g, t.hash(s, number)), c)
	case openflow.GroupTypeFF:
		t.read(s, ReadPorts)
		t.bucket(g, s.firstLive(g), c)
	default:
		for i := 0; i < len(g.buckets) && !t.stopped(); i++ {
			t.bucket(g, i, c)
		}
	}
}

// bucket executes the actions of a bucket as an action set; -1: there is none.
func (t *translator) bucket(g *Group, i int, c *scope) {
	if i < 0 {
		return
	}
	t.credit(&g.buckets[i])
	before := t.st
	var set actionSet
	actions := g.desc.Buckets[i].Actions
	for i := range actions {
		set.add(&actions[i])
	}
	c.depth++
	set.execute(t, c)
	c.depth--
	t.st = before
}

// hash returns the number by which a select group chooses: the same for all packets of a
// connection, and the same after a restart. All addresses count; fragments of IP packets are hashed
// by them alone, so that they take one path.
func (t *translator) hash(s *Switch, group uint32) uint64 {
	k := &t.st.key
	h := mixFixed(s.config.DatapathID, uint64(group)+1)
	add := func(word int, bits uint64) {
		t.look(word, bits)
		h = mixFixed(h, k[word]&bits|1<<63>>word)
	}
	add(wordDst, ^uint64(0))
	add(wordSrc, ^uint64(tagAll)|tagVID)
	if t.st.key.EthType() == openflow.EthTypeARP && !t.lacks(shapeNoL3) {
		add(wordIPv4, ^uint64(0))
	}
	if !t.ip() {
		return h
	}
	if k.EthType() == openflow.EthTypeIPv4 {
		add(wordIPv4, ^uint64(0))
	} else {
		for i := range 4 {
			add(wordIPv6Src+i, ^uint64(0))
		}
	}
	add(wordIP, ipProtoMask)
	switch k.ipProto() {
	case openflow.IPProtoTCP, openflow.IPProtoUDP, openflow.IPProtoSCTP:
		if !t.lacks(shapeFragment | shapeNoL4) {
			add(wordPorts, 0xffffffff<<32)
		}
	}
	return h
}

// actionSet holds at most one action of a kind, in the order of execution (section 5.10).
type actionSet struct {
	n    int
	list [64]*openflow.Action
}

// rankOf is the position of an action in the order of execution: that of the specification, with
// pops from the outside.
var rankOf = func() (ranks [32]uint8) {
	for i, a := range []openflow.ActionType{
		openflow.ActionCopyTTLIn, openflow.ActionPopVLAN, openflow.ActionPopPBB, openflow.ActionPopMPLS,
		openflow.ActionPushMPLS, openflow.ActionPushPBB, openflow.ActionPushVLAN, openflow.ActionCopyTTLOut,
		openflow.ActionDecMPLSTTL, openflow.ActionDecNwTTL, openflow.ActionSetMPLSTTL, openflow.ActionSetNwTTL,
		openflow.ActionSetField, openflow.ActionSetQueue, openflow.ActionGroup, openflow.ActionOutput,
	} {
		ranks[a] = uint8(i)
	}
	return ranks
}()

// add adds an action, or replaces the one of its kind.
func (s *actionSet) add(a *openflow.Action) {
	at := s.n
	for i, other := range s.list[:s.n] {
		if other.Type == a.Type && (a.Type != openflow.ActionSetField || other.Field.Field == a.Field.Field) {
			s.list[i] = a
			return
		}
		if at == s.n && rankOf[other.Type] > rankOf[a.Type] {
			at = i
		}
	}
	if s.n == len(s.list) {
		return // there are fewer kinds than that
	}
	copy(s.list[at+1:s.n+1], s.list[at:s.n])
	s.list[at] = a
	s.n++
}

// execute executes the set; a group takes the place of an output.
func (s *actionSet) execute(t *translator, c *scope) bool {
	for i, a := range s.list[:s.n] {
		if a.Type == openflow.ActionOutput && i > 0 && s.list[i-1].Type == openflow.ActionGroup {
			return true
		}
		if !t.action(a, c) {
			return false
		}
	}
	return true
}
