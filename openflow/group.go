package openflow

import (
	"fmt"
	"strings"
)

// GroupModCommand is ofp_group_mod_command (section 7.3.4.2).
type GroupModCommand uint16

const (
	GroupAdd GroupModCommand = iota
	GroupModify
	GroupDelete
)

// String returns the name in the specification without its prefix OFPGC_.
func (c GroupModCommand) String() string {
	return nameOf([]string{"ADD", "MODIFY", "DELETE"}, "command ", c)
}

// GroupType is ofp_group_type (section 7.3.4.2).
type GroupType uint8

const (
	GroupTypeAll      GroupType = iota // every bucket
	GroupTypeSelect                    // one bucket, by weight
	GroupTypeIndirect                  // the only bucket
	GroupTypeFF                        // the first live bucket: fast failover
)

// String returns the name as ovs-ofctl writes it.
func (t GroupType) String() string {
	return nameOf([]string{"all", "select", "indirect", "ff"}, "type ", t)
}

// Bucket is ofp_bucket (section 7.3.4.2).
type Bucket struct {
	Weight     uint16 // of GroupTypeSelect
	WatchPort  uint32 // of GroupTypeFF: the bucket is live if this port is, or PortAny
	WatchGroup uint32 // of GroupTypeFF: the bucket is live if this group is, or GroupAny
	Actions    []Action
}

// NewBucket returns a bucket that watches nothing.
func NewBucket(actions ...Action) Bucket {
	return Bucket{WatchPort: PortAny, WatchGroup: GroupAny, Actions: actions}
}

func appendBuckets(b []byte, buckets []Bucket) []byte {
	for _, bucket := range buckets {
		at := len(b)
		var p []byte
		b, p = extend(b, 16)
		put16(p, 2, bucket.Weight)
		put32(p, 4, bucket.WatchPort)
		put32(p, 8, bucket.WatchGroup)
		b = appendActions(b, bucket.Actions)
		put16(b, at, uint16(len(b)-at))
	}
	return b
}

func (d decoder) buckets(at, end int) (list []Bucket, err error) {
	for at < end {
		if err := d.within(at, 16, end, GroupModFailedBadBucket); err != nil {
			return nil, err
		}
		n := int(get16(d.b, at))
		if n < 16 || n%8 != 0 {
			return nil, d.fail(at, GroupModFailedBadBucket,
				"length %d of a bucket, want 16 or more and a multiple of 8", n)
		}
		if err := d.within(at, n, end, GroupModFailedBadBucket); err != nil {
			return nil, err
		}
		actions, err := d.actions(nil, at+16, at+n)
		if err != nil {
			return nil, err
		}
		list = append(list, Bucket{get16(d.b, at+2), get32(d.b, at+4), get32(d.b, at+8), actions})
		at += n
	}
	return list, nil
}

// GroupMod is GROUP_MOD, which changes the group table (section 7.3.4.2).
type GroupMod struct {
	Xid
	Command GroupModCommand
	GroupDesc
}

// GroupDesc is ofp_group_desc: a group as it is configured (section 7.3.5.10).
type GroupDesc struct {
	Kind    GroupType
	Group   uint32
	Buckets []Bucket
}

// Type returns TypeGroupMod.
func (m *GroupMod) Type() Type { return TypeGroupMod }

// AppendTo appends the encoded message.
func (m *GroupMod) AppendTo(b []byte) []byte {
	at := len(b)
	b, p := start(b, TypeGroupMod, m.Xid, 16)
	put16(p, 8, uint16(m.Command))
	p[10] = byte(m.Kind)
	put32(p, 12, m.Group)
	return finish(appendBuckets(b, m.Buckets), at)
}

func (m *GroupMod) decode(d decoder) (err error) {
	if err := d.need(8, 8); err != nil {
		return err
	}
	m.Command, m.Kind, m.Group = GroupModCommand(get16(d.b, 8)), GroupType(d.b[10]), get32(d.b, 12)
	if m.Command > GroupDelete {
		return d.fail(8, GroupModFailedBadCommand, "%v", m.Command)
	}
	if m.Kind > GroupTypeFF {
		return d.fail(10, GroupModFailedBadType, "group %v", m.Kind)
	}
	m.Buckets, err = d.buckets(16, len(d.b))
	return err
}

// String describes the message.
func (m *GroupMod) String() string { return fmt.Sprintf("GROUP_MOD %v %v", m.Command, &m.GroupDesc) }

// String describes the group in the manner of ovs-ofctl.
func (g *GroupDesc) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "group_id=%s,type=%v", groupName(g.Group), g.Kind)
	for _, b := range g.Buckets {
		s.WriteString(",bucket=")
		if b.Weight != 0 {
			fmt.Fprintf(&s, "weight:%d,", b.Weight)
		}
		if b.WatchPort != PortAny {
			fmt.Fprintf(&s, "watch_port:%s,", PortName(b.WatchPort))
		}
		if b.WatchGroup != GroupAny {
			fmt.Fprintf(&s, "watch_group:%s,", groupName(b.WatchGroup))
		}
		s.WriteString("actions=" + FormatActions(b.Actions))
	}
	return s.String()
}

func groupName(id uint32) string {
	switch id {
	case GroupAll:
		return "all"
	case GroupAny:
		return "any"
	}
	return fmt.Sprint(id)
}
