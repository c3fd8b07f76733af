//go:build ignore

/* Forwards packets that come in by the ports of embedded switches as user space has found out that they are to
 * be: a packet's fields, under the mask of its port, lead to an entry, and the entry says where the packet
 * goes and with which changes. What has no entry goes to user space through a tap, the miss channel; what
 * comes back through it says by which port it leaves. */

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "forward.h"

/* Set before loading. */
volatile const __u64 seed = 1;          /* of the hash */
volatile const __u32 tap = 0;           /* ifindex of the miss channel */
volatile const __u32 max_entries = 1;   /* in entries, and per CPU in counters */

#define ARRAY(NAME, TYPE) \
	struct { \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, 1); \
		__type(key, __u32); \
		__type(value, TYPE); \
	} NAME SEC(".maps")

/* Sizes are set before loading. */
ARRAY(ports, struct port);
ARRAY(masks, struct mask);
ARRAY(entries, struct entry);
ARRAY(outputs, struct output);
ARRAY(counters, struct counter);
ARRAY(activations, struct activation); /* one */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* ifindex */
	__type(value, __u32);
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct flow_key);
	__type(value, __u32); /* an entry */
} flows SEC(".maps");

#define MAX_OUTPUTS 64

#define TAG_PRESENT 0x1000
#define SHAPE_FRAGMENT (1ULL << 40)
#define SHAPE_NO_L4 (2ULL << 40)
#define EXT_FRAGMENT 16ULL

#define ETHERTYPE_STAG 0x88a8
#define ETHERTYPE_MPLS 0x8847
#define ETHERTYPE_MPLS_MULTICAST 0x8848
#define ETHERTYPE_PBB 0x88e7

/* What of a packet can be changed, in network byte order. */
struct fields {
	__u8 dst[6];
	__u8 src[6];
	__u32 saddr[4];
	__u32 daddr[4];
	__u16 sport;
	__u16 dport;
	__u8 tos;
	__u8 ttl;
	__u16 unused;
};

struct packet {
	__u64 w[WORDS];
	__u32 class;
	__u32 l3;      /* offset of the network header */
	__u32 l4;      /* offset of the transport header, 0: none */
	__u32 payload; /* offset of what TCP or UDP carry, 0: unknown */
	__u32 proto;
	__u32 tag;   /* the outermost one */
	__u32 tpid;  /* its type, 0: there is no tag */
};

enum parsed { PARSED, ODD, PULL };

static __always_inline __u16 be16(const void *p) { return bpf_ntohs(*(const __u16 *)p); }
static __always_inline __u32 be32(const void *p) { return bpf_ntohl(*(const __u32 *)p); }
static __always_inline __u64 be64(const void *p) { return bpf_be64_to_cpu(*(const __u64 *)p); }

/* What the bounds of a packet's first part leave out may be in another part. */
#define NEED(N) \
	if (at + (N) > end) \
	return PULL

static __always_inline enum parsed transport(struct packet *p, void *data, void *at, void *end, __u32 room)
{
	p->l4 = at - data;
	switch (p->proto) {
	case IPPROTO_TCP:
		NEED(20);
		if (room < 20)
			return ODD;
		p->w[WORD_PORTS] = (__u64)be32(at) << 32;
		p->payload = p->l4 + (*(__u8 *)(at + 12) >> 4) * 4;
		return PARSED;
	case IPPROTO_UDP:
		NEED(8);
		if (room < 8)
			return ODD;
		p->w[WORD_PORTS] = (__u64)be32(at) << 32;
		p->payload = p->l4 + 8;
		return PARSED;
	case IPPROTO_SCTP:
		NEED(12);
		if (room < 12)
			return ODD;
		p->w[WORD_PORTS] = (__u64)be32(at) << 32;
		return PARSED;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		if ((p->proto == IPPROTO_ICMP) == (p->class == CLASS_IPV6)) /* the other one's */
			break;
		NEED(8);
		if (room < 8)
			return ODD;
		p->w[WORD_PORTS] = (__u64) * (__u8 *)at << 48 | (__u64) * (__u8 *)(at + 1) << 32;
		return PARSED;
	}
	p->l4 = 0;
	return PARSED;
}

static __always_inline enum parsed ipv4(struct packet *p, void *data, void *at, void *end)
{
	__u32 total;
	__u16 fragment;

	NEED(20);
	if (*(__u8 *)at != 0x45) /* options, or nonsense */
		return ODD;
	p->class = CLASS_IPV4;
	p->proto = *(__u8 *)(at + 9);
	p->w[WORD_ADDR] = be64(at + 12);
	p->w[WORD_IP] = (__u64)p->proto << 56 | (__u64) * (__u8 *)(at + 1) << 48 | (__u64) * (__u8 *)(at + 8) << 32;
	fragment = be16(at + 6);
	if (fragment & 0x3fff)
		p->w[WORD_IP] |= SHAPE_FRAGMENT;
	if (fragment & 0x1fff) {
		p->w[WORD_IP] |= SHAPE_NO_L4;
		return PARSED;
	}
	total = be16(at + 2);
	if (total == 0) /* more than fit: it will be segmented */
		total = 0x10000;
	if (total < 20)
		return ODD;
	return transport(p, data, at + 20, end, total - 20);
}

/* Extension headers are for the slow way, but for a fragment header that comes alone. */
static __always_inline int extension(__u32 proto)
{
	return proto == 0 || proto == 43 || proto == 44 || proto == 50 || proto == 51 || proto == 59 || proto == 60;
}

static __always_inline enum parsed ipv6(struct packet *p, void *data, void *at, void *end)
{
	__u32 first, room;

	NEED(40);
	first = be32(at);
	if (first >> 28 != 6)
		return ODD;
	p->class = CLASS_IPV6;
	p->proto = *(__u8 *)(at + 6);
	p->w[WORD_IP] = (__u64)(first >> 20 & 0xff) << 48 | (__u64) * (__u8 *)(at + 7) << 32 | (__u64)(first & 0xfffff) << 12;
	p->w[WORD_ADDR] = be64(at + 8);
	p->w[WORD_ADDR + 1] = be64(at + 16);
	p->w[WORD_ADDR + 2] = be64(at + 24);
	p->w[WORD_ADDR + 3] = be64(at + 32);
	room = be16(at + 4);
	if (room == 0)
		room = 0x10000;
	at += 40;
	if (p->proto == IPPROTO_FRAGMENT) {
		__u16 where;

		NEED(8);
		if (room < 8)
			return ODD;
		where = be16(at + 2);
		p->proto = *(__u8 *)at;
		p->w[WORD_IP] |= EXT_FRAGMENT;
		if (where & ~6)
			p->w[WORD_IP] |= SHAPE_FRAGMENT;
		if (where & ~7) {
			p->w[WORD_IP] |= SHAPE_NO_L4 | (__u64)p->proto << 56;
			return PARSED;
		}
		at += 8;
		room -= 8;
	}
	if (extension(p->proto))
		return ODD;
	p->w[WORD_IP] |= (__u64)p->proto << 56;
	return transport(p, data, at, end, room);
}

static __always_inline enum parsed arp(struct packet *p, void *at, void *end)
{
	NEED(28);
	if (be32(at) != 0x00010800 || be16(at + 4) != 0x0604)
		return ODD;
	p->class = CLASS_ARP;
	p->w[WORD_PORTS] = (__u64)be16(at + 6) << 48;
	p->w[WORD_ADDR] = (__u64)be32(at + 14) << 32 | be32(at + 24);
	return PARSED;
}

static __always_inline int is_tag(__u16 type) { return type == ETH_P_8021Q || type == ETHERTYPE_STAG; }

/* Reads what pipeline.ParseKey reads, or says that it is odd. The packet must be all zero. */
static __always_inline enum parsed parse(struct __sk_buff *skb, struct packet *p)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end, *at = data;
	__u16 type;

	NEED(ETH_HLEN);
	p->w[WORD_DST] = be64(at) & ~0xffffULL;
	p->w[WORD_SRC] = (__u64)be16(at + 6) << 48 | (__u64)be32(at + 8) << 16;
	type = be16(at + 12);
	at += ETH_HLEN;
	if (skb->vlan_present) {
		p->tag = skb->vlan_tci;
		p->tpid = bpf_ntohs(skb->vlan_proto);
	} else if (is_tag(type)) {
		NEED(4);
		p->tag = be16(at);
		p->tpid = type;
		type = be16(at + 2);
		at += 4;
	}
	if (p->tpid)
		p->w[WORD_SRC] |= p->tag | TAG_PRESENT;
	if (p->tpid && is_tag(type)) {
		NEED(4);
		p->w[WORD_TAGS] = (__u64)(be16(at) | TAG_PRESENT) << 48;
		type = be16(at + 2);
		at += 4;
	}
	p->w[WORD_DST] |= type;
	p->l3 = at - data;
	switch (type) {
	case ETH_P_IP:
		return ipv4(p, data, at, end);
	case ETH_P_IPV6:
		return ipv6(p, data, at, end);
	case ETH_P_ARP:
		return arp(p, at, end);
	case ETHERTYPE_MPLS:
	case ETHERTYPE_MPLS_MULTICAST:
		NEED(4);
		p->w[WORD_TAGS] |= be32(at);
		return PARSED;
	}
	if (type < 0x600 || is_tag(type) || type == ETHERTYPE_PBB)
		return ODD;
	return PARSED;
}

/* Sends a packet by a port; that is what the program returns. */
static __always_inline int send(struct __sk_buff *skb, __u32 id, const __u8 *dst)
{
	struct port *out = bpf_map_lookup_elem(&ports, &id);
	__u32 type = PACKET_HOST, high, low;

	if (!out || !out->ifindex)
		return TC_ACT_SHOT;
	if (out->mode != MODE_PEER)
		return bpf_redirect(out->ifindex, 0);
	/* The device at the other end will not look at the destination any more: what kind of packet it is must
	 * be right. What is for neither it nor a group goes the long way, on which the kernel finds out. */
	high = *(__u32 *)dst;
	low = *(__u16 *)(dst + 4);
	if (dst[0] & 1)
		type = high == 0xffffffff && low == 0xffff ? PACKET_BROADCAST : PACKET_MULTICAST;
	else if (high != *(__u32 *)out->mac || low != *(__u16 *)(out->mac + 4))
		return bpf_redirect(out->ifindex, 0);
	if (bpf_skb_change_type(skb, type))
		return TC_ACT_SHOT;
	return bpf_redirect_peer(out->ifindex, 0);
}

/* Sends a packet out by the device of a port, as copies go: so they stay in their order. */
static __always_inline int leave(struct __sk_buff *skb, __u32 id)
{
	struct port *out = bpf_map_lookup_elem(&ports, &id);

	return out && out->ifindex ? bpf_redirect(out->ifindex, 0) : TC_ACT_SHOT;
}

/* Gives a packet to user space. */
static __always_inline int miss(struct __sk_buff *skb, struct port *in, __u32 id, __u32 entry, __u8 reason)
{
	struct missed m = {.magic = MISS_MAGIC, .port = id, .entry = entry, .reason = reason, .tagged = !!skb->vlan_present};

	if (bpf_skb_change_head(skb, sizeof(m), 0) || bpf_skb_store_bytes(skb, 0, &m, sizeof(m), 0)) {
		__sync_fetch_and_add(&in->failed, 1);
		return TC_ACT_SHOT;
	}
	__sync_fetch_and_add(&in->sent, 1);
	return bpf_redirect(tap, 0);
}

static __always_inline int crowded(struct port *in)
{
	if (in->sent - in->done < in->limit)
		return 0;
	__sync_fetch_and_add(&in->dropped, 1);
	return 1;
}

static __always_inline __u64 mix(__u64 h, __u64 v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 29;
}

/* Finds the entry of a packet, whose words are masked for that in key. */
static __always_inline struct entry *find(struct packet *p, struct port *in, __u32 port, __u32 *id)
{
	struct flow_key key = {.port = port, .mask = in->masks[p->class & (CLASSES - 1)]};
	struct mask *mask = bpf_map_lookup_elem(&masks, &key.mask);
	__u64 w[WORDS], differ = 0;
	struct entry *e;
	__u32 *found;
	int i;

	if (!key.mask || !mask)
		return 0;
	key.hash = seed;
	for (i = 0; i <= WORD_ADDR; i++) {
		w[i] = p->w[i] & mask->w[i];
		key.hash = mix(key.hash, w[i]);
	}
	for (; i < WORDS; i++)
		w[i] = 0;
	if (p->class == CLASS_IPV6)
		for (i = WORD_ADDR + 1; i < WORDS; i++) {
			w[i] = p->w[i] & mask->w[i];
			key.hash = mix(key.hash, w[i]);
		}
	found = bpf_map_lookup_elem(&flows, &key);
	if (!found)
		return 0;
	*id = *found;
	e = bpf_map_lookup_elem(&entries, id);
	if (!e)
		return 0;
	for (i = 0; i < WORDS; i++)
		differ |= w[i] ^ e->w[i];
	if (differ || e->port != port || e->mask != key.mask)
		return 0;
	return e;
}

/* Says whether an entry holds for a packet. */
static __always_inline int holds(struct __sk_buff *skb, struct packet *p, struct entry *e)
{
	__u32 ttl = p->w[WORD_IP] >> 32 & 0xff, size = skb->len - p->l3;

	if (p->class != CLASS_IPV4 && p->class != CLASS_IPV6)
		return 1;
	if (ttl < e->ttl_min || ttl > e->ttl_max)
		return 0;
	if (skb->gso_size)
		size = (p->payload ? p->payload - p->l3 : 0) + skb->gso_size;
	return !e->mtu || size <= e->mtu;
}

static __always_inline void count(struct __sk_buff *skb, struct packet *p, __u32 id)
{
	__u32 at = bpf_get_smp_processor_id() * max_entries + id, len = skb->len, segments = 1;
	struct counter *c = bpf_map_lookup_elem(&counters, &at);

	if (!c)
		return;
	if (skb->gso_size && p->payload && len > p->payload) {
		segments = (len - p->payload + skb->gso_size - 1) / skb->gso_size;
		len += (segments - 1) * p->payload;
	}
	if (skb->vlan_present)
		len += 4 * segments;
	c->packets += segments;
	c->bytes += len;
	c->last = bpf_ktime_get_coarse_ns();
}

/* A run is a packet that goes out by several ports. */
struct run {
	struct __sk_buff *skb;
	struct output *next;
	struct fields was; /* as the packet came in */
	struct fields is;
	__u32 changed; /* fields that may be different from what they were */
	__u32 class;
	__u32 l3;
	__u32 l4;
	__u32 checksum; /* offset of the transport checksum, 0: none */
	__u32 flags;    /* for changes of it */
	__u32 tag;
	__u32 tpid;
	__u32 error;
	__u32 proto;
};

static __always_inline void begin(struct run *r, struct __sk_buff *skb, struct packet *p)
{
	__u64 addr = p->w[WORD_ADDR];

	r->skb = skb;
	r->class = p->class;
	r->l3 = p->l3;
	r->l4 = p->l4;
	r->proto = p->proto;
	r->tag = p->tag;
	r->tpid = p->tpid;
	*(__u64 *)r->was.dst = bpf_cpu_to_be64(p->w[WORD_DST]);
	*(__u32 *)r->was.src = bpf_htonl(p->w[WORD_SRC] >> 32);
	*(__u16 *)(r->was.src + 4) = bpf_htons(p->w[WORD_SRC] >> 16);
	r->was.sport = bpf_htons(p->w[WORD_PORTS] >> 48);
	r->was.dport = bpf_htons(p->w[WORD_PORTS] >> 32);
	r->was.tos = p->w[WORD_IP] >> 48;
	r->was.ttl = p->w[WORD_IP] >> 32;
	if (p->class == CLASS_IPV6) {
		*(__u64 *)&r->was.saddr[0] = bpf_cpu_to_be64(addr);
		*(__u64 *)&r->was.saddr[2] = bpf_cpu_to_be64(p->w[WORD_ADDR + 1]);
		*(__u64 *)&r->was.daddr[0] = bpf_cpu_to_be64(p->w[WORD_ADDR + 2]);
		*(__u64 *)&r->was.daddr[2] = bpf_cpu_to_be64(p->w[WORD_ADDR + 3]);
	} else {
		r->was.saddr[0] = bpf_htonl(addr >> 32);
		r->was.daddr[0] = bpf_htonl(addr);
	}
	if (p->l4 && p->proto == IPPROTO_TCP)
		r->checksum = p->l4 + 16;
	if (p->l4 && p->proto == IPPROTO_UDP) {
		r->checksum = p->l4 + 6;
		r->flags = BPF_F_MARK_MANGLED_0;
	}
	if (p->l4 && p->proto == IPPROTO_ICMPV6)
		r->checksum = p->l4 + 2;
	r->is = r->was;
}

static __always_inline void set_addr(struct run *r, __u32 at, __u32 *is, const __u32 *to)
{
	if (r->class == CLASS_IPV4) {
		if (*is == *to)
			return;
		r->error |= bpf_l3_csum_replace(r->skb, r->l3 + 10, *is, *to, 4);
		if (r->checksum)
			r->error |= bpf_l4_csum_replace(r->skb, r->checksum, *is, *to, r->flags | BPF_F_PSEUDO_HDR | 4);
		*is = *to;
		r->error |= bpf_skb_store_bytes(r->skb, r->l3 + 12 + at, is, 4, 0);
		return;
	}
	if (r->checksum) {
		__s64 diff = bpf_csum_diff(is, 16, (__u32 *)to, 16, 0);

		r->error |= bpf_l4_csum_replace(r->skb, r->checksum, 0, diff, r->flags | BPF_F_PSEUDO_HDR);
	}
	__builtin_memcpy(is, to, 16);
	r->error |= bpf_skb_store_bytes(r->skb, r->l3 + 8 + 4 * at, is, 16, 0);
}

static __always_inline void set_port(struct run *r, __u32 at, __u16 *is, __u16 to)
{
	if (*is == to)
		return;
	if (r->checksum)
		r->error |= bpf_l4_csum_replace(r->skb, r->checksum, *is, to, r->flags | 2);
	*is = to;
	r->error |= bpf_skb_store_bytes(r->skb, r->l4 + at, is, 2, 0);
}

static __always_inline void set_tos(struct run *r, __u8 to)
{
	if (r->is.tos == to)
		return;
	if (r->class == CLASS_IPV4) {
		r->error |= bpf_l3_csum_replace(r->skb, r->l3 + 10, bpf_htons(0x4500 | r->is.tos), bpf_htons(0x4500 | to), 2);
		r->error |= bpf_skb_store_bytes(r->skb, r->l3 + 1, &to, 1, 0);
	} else {
		__u8 b[2];

		r->error |= bpf_skb_load_bytes(r->skb, r->l3, b, 2);
		b[0] = 0x60 | to >> 4;
		b[1] = (b[1] & 0xf) | to << 4;
		r->error |= bpf_skb_store_bytes(r->skb, r->l3, b, 2, BPF_F_RECOMPUTE_CSUM);
	}
	r->is.tos = to;
}

static __always_inline void set_ttl(struct run *r, __u8 to)
{
	if (r->is.ttl == to)
		return;
	if (r->class == CLASS_IPV4) {
		r->error |= bpf_l3_csum_replace(r->skb, r->l3 + 10, bpf_htons(r->is.ttl << 8 | r->proto), bpf_htons(to << 8 | r->proto), 2);
		r->error |= bpf_skb_store_bytes(r->skb, r->l3 + 8, &to, 1, 0);
	} else {
		r->error |= bpf_skb_store_bytes(r->skb, r->l3 + 7, &to, 1, BPF_F_RECOMPUTE_CSUM);
	}
	r->is.ttl = to;
}

/* Makes the packet what it is to be at an output: fields that the output does not set are what they were, also
 * when an output before it has set them. */
static __always_inline void change(struct run *r, struct output *o)
{
	__u32 touch = o->set | r->changed;

	if (touch & (SET_DST | SET_SRC)) {
		__builtin_memcpy(r->is.dst, o->set & SET_DST ? o->dst : r->was.dst, 6);
		__builtin_memcpy(r->is.src, o->set & SET_SRC ? o->src : r->was.src, 6);
		r->error |= bpf_skb_store_bytes(r->skb, 0, r->is.dst, 12, 0);
	}
	if (!(touch & ~(SET_DST | SET_SRC | VLAN_POP | VLAN_PUSH)))
		return;
	if (touch & (SET_TTL | DEC_TTL)) {
		__u8 ttl = r->was.ttl;

		if (o->set & SET_TTL)
			ttl = o->ttl;
		else if (o->set & DEC_TTL)
			ttl -= o->ttl;
		set_ttl(r, ttl);
	}
	if (touch & SET_TOS)
		set_tos(r, o->set & SET_TOS ? (r->was.tos & ~o->tos_mask) | o->tos : r->was.tos);
	if (touch & SET_SADDR) {
		if (o->set & SET_SADDR)
			set_addr(r, 0, r->is.saddr, o->saddr);
		else
			set_addr(r, 0, r->is.saddr, r->was.saddr);
	}
	if (touch & SET_DADDR) {
		if (o->set & SET_DADDR)
			set_addr(r, 4, r->is.daddr, o->daddr);
		else
			set_addr(r, 4, r->is.daddr, r->was.daddr);
	}
	if (touch & SET_SPORT)
		set_port(r, 0, &r->is.sport, o->set & SET_SPORT ? o->sport : r->was.sport);
	if (touch & SET_DPORT)
		set_port(r, 2, &r->is.dport, o->set & SET_DPORT ? o->dport : r->was.dport);
}

static __always_inline void tag(struct run *r, struct output *o)
{
	__u16 tpid = o->vlan_proto ? o->vlan_proto : r->tpid;

	if (o->set & VLAN_POP)
		r->error |= bpf_skb_vlan_pop(r->skb);
	if (o->set & VLAN_PUSH)
		r->error |= bpf_skb_vlan_push(r->skb, bpf_htons(tpid), (r->tag & o->vlan_keep) | o->vlan_tci);
}

static __always_inline void untag(struct run *r, struct output *o)
{
	if (o->set & VLAN_PUSH)
		r->error |= bpf_skb_vlan_pop(r->skb);
	if (o->set & VLAN_POP)
		r->error |= bpf_skb_vlan_push(r->skb, bpf_htons(r->tpid), r->tag);
}

/* Sends copies by all outputs but the last one; 1: that one is reached. */
static long copy(__u32 i, struct run *r)
{
	struct output *o = r->next;
	struct port *out;
	__u32 next, port;

	if (!o)
		return 1;
	next = o->next;
	if (!next)
		return 1;
	change(r, o);
	tag(r, o);
	port = o->port;
	out = bpf_map_lookup_elem(&ports, &port);
	if (out && out->ifindex && !r->error)
		bpf_clone_redirect(r->skb, out->ifindex, 0);
	untag(r, o);
	r->changed |= o->set;
	r->next = bpf_map_lookup_elem(&outputs, &next);
	return 0;
}

static __always_inline int forward(struct __sk_buff *skb, struct packet *p, struct entry *e, struct port *in)
{
	struct run r = {};
	struct output *last = &e->first;

	if (!e->outputs)
		return TC_ACT_SHOT;
	begin(&r, skb, p);
	if (e->outputs > 1) {
		r.next = last;
		bpf_loop(MAX_OUTPUTS, copy, &r, 0);
		last = r.next;
		if (!last)
			return TC_ACT_SHOT;
	}
	if (last->set | r.changed) {
		change(&r, last);
		tag(&r, last);
	}
	if (r.error) {
		__sync_fetch_and_add(&in->failed, 1);
		return TC_ACT_SHOT;
	}
	return e->outputs > 1 ? leave(skb, last->port) : send(skb, last->port, r.is.dst);
}

SEC("tc")
int ingress(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, entry = 0, *id = bpf_map_lookup_elem(&devices, &ifindex), port;
	struct packet p = {};
	enum parsed parsed;
	struct port *in;
	struct entry *e;
	__u64 state;

	if (!id)
		return TC_ACT_UNSPEC;
	port = *id;
	in = bpf_map_lookup_elem(&ports, &port);
	if (!in)
		return TC_ACT_SHOT;
	parsed = parse(skb, &p);
	if (parsed == PULL) {
		/* The longest that is looked at: Ethernet, a tag, IPv6, a fragment header, TCP. */
		bpf_skb_pull_data(skb, skb->len < 90 ? skb->len : 90);
		__builtin_memset(&p, 0, sizeof(p));
		parsed = parse(skb, &p);
	}
	if (parsed != PARSED)
		return crowded(in) ? TC_ACT_SHOT : miss(skb, in, port, 0, MISS_ODD);
	e = find(&p, in, port, &entry);
	if (!e)
		return crowded(in) ? TC_ACT_SHOT : miss(skb, in, port, 0, MISS_FLOW);
	if (!holds(skb, &p, e))
		return crowded(in) ? TC_ACT_SHOT : miss(skb, in, port, 0, MISS_GUARD);
	state = *(volatile __u64 *)&e->state;
	if (state >> STATE_SHIFT != STATE_ACTIVE) {
		if (state >> STATE_SHIFT == STATE_DRAIN) {
			__sync_fetch_and_add(&in->dropped, 1);
			return TC_ACT_SHOT;
		}
		if (crowded(in))
			return TC_ACT_SHOT;
		if (state >> STATE_SHIFT == STATE_NONE)
			return miss(skb, in, port, 0, MISS_FLOW);
		state = __sync_fetch_and_add(&e->state, 1);
		if (state >> STATE_SHIFT != STATE_ACTIVE)
			return miss(skb, in, port, entry, MISS_FLOW);
	}
	count(skb, &p, entry);
	return forward(skb, &p, e, in);
}

/* Makes an entry active: with the packet that is sent now, all have left that met it before. User space could
 * do that only afterwards, when the answer to this packet may be here already. */
static __always_inline void activate(void)
{
	__u32 zero = 0;
	struct activation *a = bpf_map_lookup_elem(&activations, &zero);
	struct entry *e = a ? bpf_map_lookup_elem(&entries, &a->entry) : 0;

	if (e)
		__sync_val_compare_and_swap(&e->state, a->expected, (__u64)STATE_ACTIVE << STATE_SHIFT);
}

/* Packets that user space sends: an outermost VLAN tag of no other meaning is the port, and its type says
 * whether an entry becomes active. */
SEC("tc")
int inject(struct __sk_buff *skb)
{
	__u32 port = skb->vlan_tci, type = skb->vlan_proto;
	__u8 dst[8] = {};

	if (!skb->vlan_present || bpf_skb_vlan_pop(skb) || bpf_skb_load_bytes(skb, 0, dst, 6))
		return TC_ACT_SHOT;
	if (type == bpf_htons(ETHERTYPE_STAG))
		activate();
	return send(skb, port, dst);
}

/* Takes packets as ingress does and sends them to one port, to compare. */
SEC("tc")
int null(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, *id = bpf_map_lookup_elem(&devices, &ifindex);

	if (!id || bpf_skb_change_type(skb, PACKET_HOST))
		return TC_ACT_UNSPEC;
	return bpf_redirect_peer(*id, 0);
}

char terms[] SEC("license") = "Dual MIT/GPL";
