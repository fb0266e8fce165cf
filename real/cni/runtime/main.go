// What a container runtime asks of libcni and cnitool does not: a collection with a list, and the
// versions of a plugin. Folders come from NETCONFPATH, CNI_PATH and CNI_CACHE.
//
//	runtime gc NETWORK [CONTAINER/INTERFACE]...
//	runtime versions PLUGIN
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: runtime gc NETWORK [CONTAINER/INTERFACE]... | runtime versions PLUGIN")
	}
	cni := libcni.NewCNIConfigWithCacheDir(filepath.SplitList(os.Getenv("CNI_PATH")), os.Getenv("CNI_CACHE"), nil)
	switch args[0] {
	case "gc":
		return collect(cni, args[1], args[2:])
	case "versions":
		return versions(cni, args[1])
	}
	return fmt.Errorf("unknown command %q", args[0])
}

func collect(cni *libcni.CNIConfig, network string, keep []string) error {
	list, err := libcni.LoadNetworkConf(os.Getenv("NETCONFPATH"), network)
	if err != nil {
		return err
	}
	valid := []types.GCAttachment{}
	for _, one := range keep {
		container, name, _ := strings.Cut(one, "/")
		valid = append(valid, types.GCAttachment{ContainerID: container, IfName: name})
	}
	return cni.GCNetworkList(context.Background(), list, &libcni.GCArgs{ValidAttachments: valid})
}

func versions(cni *libcni.CNIConfig, plugin string) error {
	info, err := cni.GetVersionInfo(context.Background(), plugin)
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(info.SupportedVersions(), " "))
	return nil
}
