// SPDX-License-Identifier: GPL-2.0
/* Gives a packet of the kernel's test run what its bytes cannot say: the tunnel that it came by, and a
 * tag that the card took off. Then the program under test has it, as it would have it at its link.
 *
 * The rule: nothing of the packet itself is changed here. What is set for a packet that leaves is read
 * with both ends exchanged by whom it comes to. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct letter {
	__u32 is_tunnelled;
	__u32 is_ipv6;
	__u32 network;
	__u32 tag; /* zero: none */
	__u32 from[4]; /* IPv4 in the first, in host byte order */
	__u32 to[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct letter);
} letters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} subjects SEC(".maps");

static __always_inline long tunnel(struct __sk_buff *skb, const struct letter *letter)
{
	struct bpf_tunnel_key key = { .tunnel_id = letter->network, .tunnel_ttl = 64 };

	if (letter->is_ipv6) {
		__builtin_memcpy(key.local_ipv6, letter->from, sizeof(letter->from));
		__builtin_memcpy(key.remote_ipv6, letter->to, sizeof(letter->to));
	} else {
		key.local_ipv4 = letter->from[0];
		key.remote_ipv4 = letter->to[0];
	}
	return bpf_skb_set_tunnel_key(skb, &key, sizeof(key),
				      letter->is_ipv6 ? BPF_F_TUNINFO_IPV6 : 0);
}

/* What a program says that could not be asked: no verdict of any. */
#define NOT_ASKED 77

SEC("classifier")
int envelope(struct __sk_buff *skb)
{
	__u32 first = 0;
	struct letter *letter = bpf_map_lookup_elem(&letters, &first);

	if (!letter || (letter->is_tunnelled && tunnel(skb, letter)) ||
	    (letter->tag && bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), letter->tag)))
		return NOT_ASKED;
	bpf_tail_call(skb, &subjects, 0);
	return NOT_ASKED;
}

char LICENSE[] SEC("license") = "GPL";
