/* Reads of a packet what pipeline.ParseKey reads. */
#ifndef PARSE_H
#define PARSE_H

/* A global function, which the kernel verifies by itself: inlined, each of the ways through it would be followed through all that
 * comes after it, which takes most of the time in which a lab comes up. */
#define VERIFIED_ALONE __attribute__((noinline))

#define TAG_PRESENT 0x1000
#define SHAPE_FRAGMENT (1ULL << 40)
#define SHAPE_NO_L4 (2ULL << 40)
#define SHAPE_BAD_SUM (8ULL << 40)
#define EXT_FRAGMENT 16ULL

#define ETHERTYPE_STAG 0x88a8
#define ETHERTYPE_MPLS 0x8847
#define ETHERTYPE_MPLS_MULTICAST 0x8848
#define ETHERTYPE_PBB 0x88e7

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

/* Says whether the checksum of an IPv4 header of 20 bytes is wrong. */
static __always_inline int bad_sum(const __u32 *h)
{
	__u64 sum = (__u64)h[0] + h[1] + h[2] + h[3] + h[4];

	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return sum != 0xffff;
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
	if (bad_sum(at))
		p->w[WORD_IP] |= SHAPE_BAD_SUM;
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
VERIFIED_ALONE int parse(struct __sk_buff *skb, struct packet *p)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end, *at = data;
	__u16 type;

	if (!p)
		return ODD;
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

#endif
