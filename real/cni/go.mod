// The real cnitool and libcni that drive our plugin in tests; pinned by go.sum.
module atoll.dev/real/cni

go 1.24.0

tool github.com/containernetworking/cni/cnitool

require github.com/containernetworking/cni v1.3.0
