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
#include "parse.h"
#include "change.h"

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

#define MAX_OUTPUTS 512

/* Says whether a packet may enter the device at the other end of a port's: which will not look at the destination
 * any more, so that what kind of packet it is, the type, must be right. What is for neither it nor a group goes
 * the long way, on which the kernel finds out. */
static __always_inline int direct(struct port *out, const __u8 *dst, __u32 *type)
{
	__u32 high = *(__u32 *)dst, low = *(__u16 *)(dst + 4);

	if (out->mode != MODE_PEER)
		return 0;
	if (dst[0] & 1) {
		*type = high == 0xffffffff && low == 0xffff ? PACKET_BROADCAST : PACKET_MULTICAST;
		return 1;
	}
	*type = PACKET_HOST;
	return high == *(__u32 *)out->mac && low == *(__u16 *)(out->mac + 4);
}

/* Sends a packet out by the device of a port. Where it may wait there what is sent is a clone, which is no socket's:
 * else the sender's socket would wait for the queues of switches and routers as for that of its own device, and
 * would never fill them. */
static __always_inline int leave_by(struct __sk_buff *skb, struct port *out)
{
	if (out->mode != MODE_QUEUE)
		return bpf_redirect(out->ifindex, 0);
	bpf_clone_redirect(skb, out->ifindex, 0);
	return TC_ACT_STOLEN;
}

/* Sends a packet by a port; that is what the program returns. */
static __always_inline int send(struct __sk_buff *skb, __u32 id, const __u8 *dst)
{
	struct port *out = bpf_map_lookup_elem(&ports, &id);
	__u32 type;

	if (!out || !out->ifindex)
		return TC_ACT_SHOT;
	if (!direct(out, dst, &type))
		return leave_by(skb, out);
	if (bpf_skb_change_type(skb, type))
		return TC_ACT_SHOT;
	return bpf_redirect_peer(out->ifindex, 0);
}

/* Sends a packet out by the device of a port, as copies go: so they stay in their order. */
static __always_inline int leave(struct __sk_buff *skb, __u32 id)
{
	struct port *out = bpf_map_lookup_elem(&ports, &id);

	return out && out->ifindex ? leave_by(skb, out) : TC_ACT_SHOT;
}

/* Gives a packet to user space. */
static __always_inline int miss(struct __sk_buff *skb, struct port *in, __u32 id, __u32 entry, __u8 reason)
{
	struct missed m = {.magic = MISS_MAGIC, .port = id, .entry = entry, .reason = reason, .tagged = !!skb->vlan_present, .parts = skb->gso_size ? skb->gso_segs : 0};

	if (bpf_skb_change_head(skb, sizeof(m), 0) || bpf_skb_store_bytes(skb, 0, &m, sizeof(m), 0)) {
		__sync_fetch_and_add(&in->failed, 1);
		return TC_ACT_SHOT;
	}
	__sync_fetch_and_add(&in->sent, 1);
	return bpf_redirect(tap, 0);
}

static __always_inline int crowded(struct port *in)
{
	if ((__s64)(in->sent - in->done) < (__s64)in->limit)
		return 0;
	__sync_fetch_and_add(&in->dropped, 1);
	return 1;
}

static __always_inline __u64 mix(__u64 h, __u64 v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 29;
}

/* Finds the entry of a key, of the words w. */
static __always_inline struct entry *look(struct flow_key *key, __u64 *w, __u32 *id)
{
	__u32 *found = bpf_map_lookup_elem(&flows, key);
	struct entry *e;
	__u64 differ = 0;
	int i;

	if (!found)
		return 0;
	*id = *found;
	e = bpf_map_lookup_elem(&entries, id);
	if (!e)
		return 0;
	for (i = 0; i < WORDS; i++)
		differ |= w[i] ^ e->w[i];
	return differ || e->port != key->port || e->mask != key->mask ? 0 : e;
}

/* Finds the entry of a packet. */
static __always_inline struct entry *find(struct packet *p, struct port *in, __u32 port, __u32 *id)
{
	struct flow_key key = {.port = port, .mask = in->masks[p->class & (CLASSES - 1)]};
	struct mask *mask = bpf_map_lookup_elem(&masks, &key.mask);
	__u64 w[WORDS];
	struct entry *e;
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
	/* A flow that leads to another entry from now on is missing for a moment, for who was among those of its
	 * hash already: it would go through user space, and the next ones around it. */
	e = look(&key, w, id);
	return e ? e : look(&key, w, id);
}

/* Says whether an entry holds for a packet. */
static __always_inline int holds(struct __sk_buff *skb, struct packet *p, struct entry *e)
{
	__u32 ttl = p->w[WORD_IP] >> 32 & 0xff, size = skb->len - p->l3;

	if (skb->gso_size)
		size = (p->payload ? p->payload - p->l3 : 0) + skb->gso_size;
	if (e->mtu && size > e->mtu)
		return 0;
	if (p->class != CLASS_IPV4 && p->class != CLASS_IPV6)
		return 1;
	return ttl >= e->ttl_min && ttl <= e->ttl_max;
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

struct copies {
	struct __sk_buff *skb;
	struct run *run;
	struct output *next;
};

/* Sends copies by all outputs but the last one; 1: that one is reached. */
static long copy(__u32 i, struct copies *c)
{
	struct run *r = c->run;
	struct output *o = c->next;
	struct port *out;
	__u32 next, port;

	if (!o)
		return 1;
	next = o->next;
	if (!next)
		return 1;
	change(c->skb, r, o);
	tag(c->skb, r, o);
	port = o->port;
	out = bpf_map_lookup_elem(&ports, &port);
	if (out && out->ifindex && !r->error)
		bpf_clone_redirect(c->skb, out->ifindex, 0);
	untag(c->skb, r, o);
	r->changed |= o->set;
	c->next = bpf_map_lookup_elem(&outputs, &next);
	return 0;
}

/* Changes a packet and sends it by one port or several. */
static __always_inline int forward_changed(struct __sk_buff *skb, struct packet *p, struct entry *e, struct port *in)
{
	struct output *last = &e->first;
	struct run r = {};
	struct copies c = {.skb = skb, .run = &r, .next = last};

	begin(&r, skb, p);
	if (e->outputs > 1) {
		bpf_loop(MAX_OUTPUTS, copy, &c, 0);
		last = c.next;
		if (!last)
			return TC_ACT_SHOT;
	}
	if (last->set | r.changed) {
		change(skb, &r, last);
		tag(skb, &r, last);
	}
	if (r.error) {
		__sync_fetch_and_add(&in->failed, 1);
		return TC_ACT_SHOT;
	}
	return e->outputs > 1 ? leave(skb, last->port) : send(skb, last->port, r.is.dst);
}

static __always_inline int forward(struct __sk_buff *skb, struct packet *p, struct entry *e, struct port *in)
{
	__u64 dst;

	if (!e->outputs)
		return TC_ACT_SHOT;
	if (e->outputs > 1 || e->first.set)
		return forward_changed(skb, p, e, in);
	dst = bpf_cpu_to_be64(p->w[WORD_DST]);
	return send(skb, e->first.port, (__u8 *)&dst);
}

SEC("tc")
int ingress(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, entry = 0, *id = bpf_map_lookup_elem(&devices, &ifindex), port;
	struct packet p = {};
	int parsed;
	struct port *in;
	struct entry *e;
	__u64 state;
	int verdict;

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
		if (state >> STATE_SHIFT != STATE_ACTIVE) {
			verdict = miss(skb, in, port, entry, MISS_FLOW);
			if (verdict == TC_ACT_SHOT) /* it has not left, and nobody is to wait for it */
				__sync_fetch_and_add(&e->state, -1);
			return verdict;
		}
	}
	count(skb, &p, entry);
	return forward(skb, &p, e, in);
}

/* Makes an entry active, when the packets that have met it are those that had left with the one that this packet
 * was made of. */
static __always_inline void activate(__u32 id, __u16 left)
{
	struct entry *e = bpf_map_lookup_elem(&entries, &id);
	__u64 state;

	if (!e)
		return;
	state = *(volatile __u64 *)&e->state;
	if ((__u16)state == left && (state >> STATE_SHIFT == STATE_PENDING || state >> STATE_SHIFT == STATE_DRAIN))
		__sync_val_compare_and_swap(&e->state, state, (__u64)STATE_ACTIVE << STATE_SHIFT);
}

/* Packets that user space sends: an outermost VLAN tag of no other meaning is the port, and its type says whether
 * an entry may become active. That must not be before the packet has arrived, or one after it, at another
 * processor, may overtake it; nor as late as when user space goes on, where the answer to it may be here already.
 * So another packet, with a mark, goes behind it, in this processor's queue of those that have come in. */
SEC("tc")
int inject(struct __sk_buff *skb)
{
	__u32 zero = 0, port = skb->vlan_tci, tag = skb->vlan_proto, type;
	struct activation *a = bpf_map_lookup_elem(&activations, &zero);
	struct port *out = bpf_map_lookup_elem(&ports, &port);
	__u8 dst[8] = {};

	if (skb->mark) {
		activate(skb->mark, skb->tc_index);
		return TC_ACT_SHOT;
	}
	if (!skb->vlan_present || !a || !out || !out->ifindex || bpf_skb_vlan_pop(skb) || bpf_skb_load_bytes(skb, 0, dst, 6))
		return TC_ACT_SHOT;
	if (tag != bpf_htons(ETHERTYPE_STAG))
		return send(skb, port, dst);
	skb->tc_index = a->left;
	if (direct(out, dst, &type)) {
		skb->mark = a->entry;
		bpf_clone_redirect(skb, tap, BPF_F_INGRESS);
		skb->mark = 0;
		skb->tc_index = 0;
		return bpf_skb_change_type(skb, type) ? TC_ACT_SHOT : bpf_redirect_peer(out->ifindex, 0);
	}
	/* Where the device is one of a pair, it waits in the queue of this processor, too. */
	bpf_clone_redirect(skb, out->ifindex, 0);
	skb->mark = a->entry;
	return bpf_redirect(tap, BPF_F_INGRESS);
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
