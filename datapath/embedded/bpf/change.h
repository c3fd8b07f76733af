/* Changes a packet, with its checksums, also those that a device is left to complete. */
#ifndef CHANGE_H
#define CHANGE_H

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

/* A run is a packet that goes out by several ports. */
struct run {
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

static __always_inline void set_addr(struct __sk_buff *skb, struct run *r, __u32 at, __u32 *is, const __u32 *to)
{
	if (r->class == CLASS_IPV4) {
		if (*is == *to)
			return;
		r->error |= bpf_l3_csum_replace(skb, r->l3 + 10, *is, *to, 4);
		if (r->checksum)
			r->error |= bpf_l4_csum_replace(skb, r->checksum, *is, *to, r->flags | BPF_F_PSEUDO_HDR | 4);
		*is = *to;
		r->error |= bpf_skb_store_bytes(skb, r->l3 + 12 + at, is, 4, 0);
		return;
	}
	if (r->checksum) {
		__s64 diff = bpf_csum_diff(is, 16, (__u32 *)to, 16, 0);

		r->error |= bpf_l4_csum_replace(skb, r->checksum, 0, diff, r->flags | BPF_F_PSEUDO_HDR);
	}
	__builtin_memcpy(is, to, 16);
	r->error |= bpf_skb_store_bytes(skb, r->l3 + 8 + 4 * at, is, 16, 0);
}

static __always_inline void set_port(struct __sk_buff *skb, struct run *r, __u32 at, __u16 *is, __u16 to)
{
	if (*is == to)
		return;
	if (r->checksum)
		r->error |= bpf_l4_csum_replace(skb, r->checksum, *is, to, r->flags | 2);
	*is = to;
	r->error |= bpf_skb_store_bytes(skb, r->l4 + at, is, 2, 0);
}

static __always_inline void set_tos(struct __sk_buff *skb, struct run *r, __u8 to)
{
	if (r->is.tos == to)
		return;
	if (r->class == CLASS_IPV4) {
		r->error |= bpf_l3_csum_replace(skb, r->l3 + 10, bpf_htons(0x4500 | r->is.tos), bpf_htons(0x4500 | to), 2);
		r->error |= bpf_skb_store_bytes(skb, r->l3 + 1, &to, 1, 0);
	} else {
		__u8 b[2];

		r->error |= bpf_skb_load_bytes(skb, r->l3, b, 2);
		b[0] = 0x60 | to >> 4;
		b[1] = (b[1] & 0xf) | to << 4;
		r->error |= bpf_skb_store_bytes(skb, r->l3, b, 2, BPF_F_RECOMPUTE_CSUM);
	}
	r->is.tos = to;
}

static __always_inline void set_ttl(struct __sk_buff *skb, struct run *r, __u8 to)
{
	if (r->is.ttl == to)
		return;
	if (r->class == CLASS_IPV4) {
		r->error |= bpf_l3_csum_replace(skb, r->l3 + 10, bpf_htons(r->is.ttl << 8 | r->proto), bpf_htons(to << 8 | r->proto), 2);
		r->error |= bpf_skb_store_bytes(skb, r->l3 + 8, &to, 1, 0);
	} else {
		r->error |= bpf_skb_store_bytes(skb, r->l3 + 7, &to, 1, BPF_F_RECOMPUTE_CSUM);
	}
	r->is.ttl = to;
}

/* Makes the packet what it is to be at an output: fields that the output does not set are what they were, also
 * when an output before it has set them. */
VERIFIED_ALONE int change(struct __sk_buff *skb, struct run *r, struct output *o)
{
	__u32 touch;

	if (!r || !o)
		return 0;
	touch = o->set | r->changed;

	if (touch & (SET_DST | SET_SRC)) {
		__builtin_memcpy(r->is.dst, o->set & SET_DST ? o->dst : r->was.dst, 6);
		__builtin_memcpy(r->is.src, o->set & SET_SRC ? o->src : r->was.src, 6);
		r->error |= bpf_skb_store_bytes(skb, 0, r->is.dst, 12, 0);
	}
	if (!(touch & ~(SET_DST | SET_SRC | VLAN_POP | VLAN_PUSH)))
		return 0;
	if (touch & (SET_TTL | DEC_TTL)) {
		__u8 ttl = r->was.ttl;

		if (o->set & SET_TTL)
			ttl = o->ttl;
		else if (o->set & DEC_TTL)
			ttl -= o->ttl;
		set_ttl(skb, r, ttl);
	}
	if (touch & SET_TOS)
		set_tos(skb, r, o->set & SET_TOS ? (r->was.tos & ~o->tos_mask) | o->tos : r->was.tos);
	if (touch & SET_SADDR) {
		if (o->set & SET_SADDR)
			set_addr(skb, r, 0, r->is.saddr, o->saddr);
		else
			set_addr(skb, r, 0, r->is.saddr, r->was.saddr);
	}
	if (touch & SET_DADDR) {
		if (o->set & SET_DADDR)
			set_addr(skb, r, 4, r->is.daddr, o->daddr);
		else
			set_addr(skb, r, 4, r->is.daddr, r->was.daddr);
	}
	if (touch & SET_SPORT)
		set_port(skb, r, 0, &r->is.sport, o->set & SET_SPORT ? o->sport : r->was.sport);
	if (touch & SET_DPORT)
		set_port(skb, r, 2, &r->is.dport, o->set & SET_DPORT ? o->dport : r->was.dport);
	return 0;
}

static __always_inline void tag(struct __sk_buff *skb, struct run *r, struct output *o)
{
	__u16 tpid = o->vlan_proto ? o->vlan_proto : r->tpid;

	if (o->set & VLAN_POP)
		r->error |= bpf_skb_vlan_pop(skb);
	if (o->set & VLAN_PUSH)
		r->error |= bpf_skb_vlan_push(skb, bpf_htons(tpid), (r->tag & o->vlan_keep) | o->vlan_tci);
}

static __always_inline void untag(struct __sk_buff *skb, struct run *r, struct output *o)
{
	if (o->set & VLAN_PUSH)
		r->error |= bpf_skb_vlan_pop(skb);
	if (o->set & VLAN_POP)
		r->error |= bpf_skb_vlan_push(skb, bpf_htons(r->tpid), r->tag);
}

#endif
