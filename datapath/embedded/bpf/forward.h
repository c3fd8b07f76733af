/* What the program and user space share: the layout of the maps. Types of Go are made from it. */
#ifndef FORWARD_H
#define FORWARD_H

#define CLASSES 4 /* of packets: each has a mask of its own at a port */
#define CLASS_OTHER 0
#define CLASS_IPV4 1
#define CLASS_IPV6 2
#define CLASS_ARP 3

/* The words of a key are those of pipeline.Key, without what only the slow way knows. */
#define WORDS 9
#define WORD_DST 0   /* eth_dst 48, eth_type 16 */
#define WORD_SRC 1   /* eth_src 48, outermost VLAN tag 16 */
#define WORD_TAGS 2  /* second VLAN tag 16, unused 16, MPLS label and the rest 32 */
#define WORD_IP 3    /* protocol 8, DSCP and ECN 8, shape 8, TTL 8, flow label 20, unused 3, extension headers 9 */
#define WORD_PORTS 4 /* source 16, destination 16, unused 32; or ICMP type and code; or ARP opcode */
#define WORD_ADDR 5  /* IPv4 and ARP: source 32, destination 32; IPv6: source 128, destination 128 */

struct mask {
	__u64 w[WORDS];
};

/* A flow is found by the hash of its masked key; its entry has the key, to be compared. */
struct flow_key {
	__u32 port;
	__u32 mask;
	__u64 hash;
};

struct port {
	__u32 ifindex; /* 0: there is no such port */
	__u32 mode;
	__u8 mac[6]; /* of the peer */
	__u16 unused;
	__u32 limit;          /* of packets in the miss channel */
	__u32 masks[CLASSES]; /* 0: none yet */
	__u64 sent;           /* packets that were given to the miss channel */
	__u64 done;           /* those that user space has dealt with */
	__u64 dropped;        /* those for which there was no room */
	__u64 failed;         /* packets that could not be changed or sent as their entry says */
};

#define MODE_EGRESS 0 /* out by the device */
#define MODE_PEER 1   /* into the device at the other end of a veth pair, in another namespace */
#define MODE_QUEUE 2  /* out by the device, in whose queueing discipline it may wait */

/* Fields that an output sets. */
#define SET_DST 1
#define SET_SRC 2
#define SET_SADDR 4
#define SET_DADDR 8
#define SET_SPORT 16
#define SET_DPORT 32
#define SET_TOS 64
#define SET_TTL 128
#define DEC_TTL 256
#define VLAN_POP 512
#define VLAN_PUSH 1024

struct output {
	__u32 port;
	__u32 next; /* another output; 0: this is the last one */
	__u32 set;
	__u8 dst[6];
	__u8 src[6];
	__u32 saddr[4]; /* network byte order, as all that follows */
	__u32 daddr[4];
	__u16 sport;
	__u16 dport;
	__u8 tos;
	__u8 tos_mask; /* the bits that are set */
	__u8 ttl;      /* to set, or by how much to decrement */
	__u8 unused;
	__u16 vlan_proto; /* host byte order; 0: as it was */
	__u16 vlan_tci;   /* host byte order */
	__u16 vlan_keep;  /* bits of the tag that stay as they were */
	__u16 unused2;
};

/* The state of an entry is in its highest bits; how many packets have met it while it was pending, in the
 * others. */
#define STATE_SHIFT 62
#define STATE_NONE 0
#define STATE_PENDING 1 /* packets take the miss channel, until those before them have left */
#define STATE_ACTIVE 2
#define STATE_DRAIN 3 /* packets are dropped: those before them are too many to wait for */

struct entry {
	__u64 state;
	__u32 port;
	__u32 mask;
	__u64 w[WORDS]; /* the masked key */
	__u16 outputs;
	__u8 ttl_min;
	__u8 ttl_max;
	__u32 mtu; /* the largest packet, without its Ethernet header, that fits all outputs, and that the tables do the same with; 0: any */
	struct output first;
};

struct counter {
	__u64 packets; /* on the wire: a packet that will be segmented counts as its segments */
	__u64 bytes;   /* with the headers of each */
	__u64 last;    /* ns, CLOCK_MONOTONIC */
};

/* An entry that becomes active with a packet that user space sends, and how many of the packets that have met it
 * have left then: in the lowest bits, which tell it from how many there are by now. */
struct activation {
	__u32 entry;
	__u32 left;
};

/* In front of a packet in the miss channel. It is as long as two Ethernet addresses: after these the tap puts
 * a VLAN tag that was not in the packet's bytes. */
struct missed {
	__u16 magic;
	__u16 port;
	__u32 entry; /* that was pending; 0: none */
	__u8 reason;
	__u8 tagged; /* a VLAN tag follows */
	__u16 parts; /* that the packet is in when it arrives, where the tap does not take it as it is */
};

#define MISS_MAGIC 0x7417
#define MISS_FLOW 0  /* no entry */
#define MISS_ODD 1   /* headers that are not looked into */
#define MISS_GUARD 2 /* an entry does not hold for this packet */

#endif
