// SPDX-License-Identifier: GPL-2.0
/* Services of namespaces of no tenant, for the node's own processes and for pods that use its network, on
 * nodes without kube-proxy: where a process says whom it speaks with, before there is a packet.
 *
 * The rules: a socket of any other network namespace is left alone, whosoever it is. What is to no service
 * goes where it was sent. What is to a service that nobody stands behind is refused at once. A process that
 * spoke to a service sees the service as the one it speaks with. A connection stays with its backend; each
 * datagram of a socket that is connected to nobody is led anew, to the same one for as long as the service
 * has it. Nothing of a tenant is known here. */
#include <linux/errno.h>

#include "backends.h"
#include "plain_abi.h"
#include "signs.h"

/* What these programs say. */
#define GO_AHEAD 1
#define REFUSED 0

/* The kernel's number of the node's network namespace. None has zero. */
volatile const __u64 NODE_NAMESPACE = 0;

/* When there are too many, the least used go first, and their processes see the backend itself. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct node_front_key);
	__type(value, struct node_front);
} node_fronts SEC(".maps");

static __always_inline bool is_of_node(struct bpf_sock_addr *ctx)
{
	return bpf_get_netns_cookie(ctx) == NODE_NAMESPACE;
}

/* The verifier lets words of this context be read and written whole, and nothing else. */
static __always_inline __u32 word(const __u32 *at)
{
	return *(const volatile __u32 *)at;
}

static __always_inline void set_word(__u32 *at, __u32 to)
{
	*(volatile __u32 *)at = to;
}

/* Whom the process names, or whom it is told of. */
static __always_inline struct address named(struct bpf_sock_addr *ctx, bool ipv4)
{
	if (ipv4)
		return ipv4_mapped(word(&ctx->user_ip4));
	return (struct address){ .words = { word(&ctx->user_ip6[0]), word(&ctx->user_ip6[1]),
					    word(&ctx->user_ip6[2]), word(&ctx->user_ip6[3]) } };
}

static __always_inline void name_another(struct bpf_sock_addr *ctx, bool ipv4,
					 const struct address *address, __be16 port)
{
	set_word(&ctx->user_port, port);
	if (ipv4) {
		set_word(&ctx->user_ip4, ipv4_of(address));
		return;
	}
	set_word(&ctx->user_ip6[0], address->words[0]);
	set_word(&ctx->user_ip6[1], address->words[1]);
	set_word(&ctx->user_ip6[2], address->words[2]);
	set_word(&ctx->user_ip6[3], address->words[3]);
}

/* What is said as a packet would say it. A socket has no address before it is told where to: its number
 * stands in the place of one, so that it is led to the same backend each time. */
static __always_inline void read_call(struct bpf_sock_addr *ctx, bool ipv4, struct flow *call)
{
	const __u64 socket = bpf_get_socket_cookie(ctx);

	__builtin_memset(call, 0, sizeof(*call));
	call->network = PLAIN_NETWORK;
	call->source.words[0] = (__u32)socket;
	call->source.words[1] = (__u32)(socket >> 32);
	call->destination = named(ctx, ipv4);
	call->transport.destination_port = (__be16)word(&ctx->user_port);
	call->transport.protocol = (__u8)word(&ctx->protocol);
}

/* All processes of the node are one client, which has no address here. */
static __always_inline bool choose_again(const struct service *service, __u64 now,
					 struct translation *to)
{
	const struct affinity_key node = { .service = service->id };
	struct affinity *known = bpf_map_lookup_elem(&service_affinity, &node);

	if (!known || passed(known->seen, now) > SECONDS((__u64)service->affinity))
		return false;
	return lead_to(service, known->place, to) && to->port == known->port &&
	       same_address(&to->address, &known->address);
}

static __always_inline void remember(const struct service *service, __u64 now,
				     const struct translation *to)
{
	const struct affinity_key node = { .service = service->id };
	const struct affinity led = {
		.seen = now,
		.address = to->address,
		.port = to->port,
		.place = to->place,
	};

	bpf_map_update_elem(&service_affinity, &node, &led, BPF_ANY);
}

static __always_inline bool choose(const struct service *service, const struct flow *call,
				   struct translation *to)
{
	__u64 now;

	if (!service->slots)
		return false;
	if (!service->affinity)
		return lead_by_slot(service, hash_of(call, service->id), to);
	now = bpf_ktime_get_coarse_ns();
	if (!choose_again(service, now, to) &&
	    !lead_by_slot(service, hash_of(call, service->id), to))
		return false;
	remember(service, now, to);
	return true;
}

static __always_inline struct node_front_key front_key(struct bpf_sock_addr *ctx,
						       const struct address *address, __be16 port)
{
	return (struct node_front_key){ .socket = bpf_get_socket_cookie(ctx),
					.address = *address,
					.port = port };
}

/* Whoever answers there is the service, for this socket. */
static __always_inline void remember_front(struct bpf_sock_addr *ctx, const struct flow *call,
					   const struct translation *to)
{
	const struct node_front_key key = front_key(ctx, &to->address, to->port);
	const struct node_front front = { .address = call->destination,
					  .port = call->transport.destination_port };
	struct node_front *known = bpf_map_lookup_elem(&node_fronts, &key);

	if (!known || known->port != front.port || !same_address(&known->address, &front.address))
		bpf_map_update_elem(&node_fronts, &key, &front, BPF_ANY);
}

/* A socket speaks straight with one whom it may have been led to before. */
static __always_inline void forget_front(struct bpf_sock_addr *ctx, const struct flow *call)
{
	const struct node_front_key key =
		front_key(ctx, &call->destination, call->transport.destination_port);

	if (bpf_map_lookup_elem(&node_fronts, &key))
		bpf_map_delete_elem(&node_fronts, &key);
}

static __always_inline int refuse(void)
{
	bpf_set_retval(-ECONNREFUSED);
	return REFUSED;
}

/* The process names somebody: where that is a service, one of those behind it takes its place. */
static __always_inline int lead(struct bpf_sock_addr *ctx, bool ipv4)
{
	struct translation to = {};
	struct service *service;
	struct flow call;

	if (!is_of_node(ctx))
		return GO_AHEAD;
	read_call(ctx, ipv4, &call);
	service = service_of(&call, SIDE_CLIENTS);
	if (!service) {
		forget_front(ctx, &call);
		return GO_AHEAD;
	}
	if (!choose(service, &call, &to) ||
	    is_mapped(&to.address) != is_mapped(&call.destination))
		return refuse();
	remember_front(ctx, &call, &to);
	name_another(ctx, ipv4, &to.address, to.port);
	return GO_AHEAD;
}

/* The process is told of somebody: where it was led there by a service, it is told of that. */
static __always_inline int tell_front(struct bpf_sock_addr *ctx, bool ipv4)
{
	struct node_front_key key;
	struct node_front *front;
	struct address address;

	if (!is_of_node(ctx))
		return GO_AHEAD;
	address = named(ctx, ipv4);
	key = front_key(ctx, &address, (__be16)word(&ctx->user_port));
	front = bpf_map_lookup_elem(&node_fronts, &key);
	if (front)
		name_another(ctx, ipv4, &front->address, front->port);
	return GO_AHEAD;
}

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx)
{
	return lead(ctx, true);
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx)
{
	return lead(ctx, false);
}

SEC("cgroup/sendmsg4")
int sendmsg4(struct bpf_sock_addr *ctx)
{
	return lead(ctx, true);
}

SEC("cgroup/sendmsg6")
int sendmsg6(struct bpf_sock_addr *ctx)
{
	return lead(ctx, false);
}

SEC("cgroup/recvmsg4")
int recvmsg4(struct bpf_sock_addr *ctx)
{
	return tell_front(ctx, true);
}

SEC("cgroup/recvmsg6")
int recvmsg6(struct bpf_sock_addr *ctx)
{
	return tell_front(ctx, false);
}

SEC("cgroup/getpeername4")
int getpeername4(struct bpf_sock_addr *ctx)
{
	return tell_front(ctx, true);
}

SEC("cgroup/getpeername6")
int getpeername6(struct bpf_sock_addr *ctx)
{
	return tell_front(ctx, false);
}

char LICENSE[] SEC("license") = "GPL";
