// SPDX-License-Identifier: GPL-2.0
/* Between a virtual machine's tap and its pod's side of the pair, inside the pod: what comes in on
 * one leaves on the other as it is. It judges nothing; from_pod does, at the other end of the
 * pair. */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

volatile const __u32 OTHER_SIDE = 0;

SEC("classifier")
int wire(struct __sk_buff *skb)
{
	(void)skb;
	return bpf_redirect(OTHER_SIDE, 0);
}

char LICENSE[] SEC("license") = "GPL";
