# What a node has of what a network could touch, line by line, without what counts by itself.
ip -br link | cut -d@ -f1 | cut -d' ' -f1 | sed 's/^/link /'
ip -o addr show scope global | awk '{print "address", $2, $4}'
for family in -4 -6; do
    ip $family route show table all | sed "s/^/route $family /"
    ip $family rule | sed "s/^/rule $family /"
done
# Frames without a rule in them are nobody's: iptables makes its tables when it is asked for one, and never
# takes them away. So is a clsact without a filter.
nft list ruleset | grep -vE '^(table ip6? (nat|filter|mangle|raw) \{|\}|\s*)$' |
    grep -vE '^\s+(chain (PREROUTING|INPUT|FORWARD|OUTPUT|POSTROUTING) \{|type .* policy accept;|\})$' |
    sed -E 's/counter packets [0-9]+ bytes [0-9]+/counter/; s/^/nft /'
for tables in iptables-save ip6tables-save; do
    $tables | grep -vE '^(#|\*|COMMIT|:[A-Z]+ ACCEPT)' | sed -E "s/ ?\[[0-9]+:[0-9]+\]//; s/^/$tables /"
done
tc qdisc show dev eth0 | grep -v '^qdisc clsact ' | sed 's/^/qdisc /'
for side in ingress egress; do tc filter show dev eth0 $side 2>&1 | sed "s/^/filter $side /"; done
# The reference plugins let a node forward when it gets its first plain pod, and others count on it from then
# on; the kernel then believes no redirects.
sysctl -ae --pattern '^net\.(core|ipv4|ipv6)\.' 2>/dev/null |
    grep -vE '^net\.ipv4\.(ip_forward|conf\.[^ ]+\.(forwarding|accept_redirects)) ' | sed 's/^/setting /'
find /opt/cni/bin /etc/cni/net.d /run -maxdepth 1 | sed 's/^/file /'
find /sys/fs/bpf | sed 's/^/pin /'
