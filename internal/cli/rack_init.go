package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/segment"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site/discover"
	"trivet.dev/trivet/topology"
)

// rackInit finds the devices of a rack, and writes its file.
func (a *app) rackInit() *cobra.Command {
	var inner, file string
	var force bool
	cmd := &cobra.Command{
		Use: "init", Short: "Find the devices on the management network, and write rack.yaml", Args: cobra.NoArgs,
		Long: "Asks every address of the inner interface's network (at most a /22) who has it, reads what SSH servers call themselves, and\n" +
			"guesses from these, MACs and names what each device is. Nobody is logged in to.",
		Example: "  sudo trivet rack init --inner eth1",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return errors.New("only root may ask who is on a network: sudo trivet rack init …")
			}
			if _, err := os.Lstat(file); err == nil && !force {
				return fmt.Errorf("%s exists: --force replaces it, --file writes another", file)
			}
			inner, err := innerNIC(inner)
			if err != nil {
				return err
			}
			addresses, err := discover.Candidates(inner)
			if err != nil {
				return err
			}
			if !a.json {
				fmt.Fprintf(a.err, "asking who has one of %d addresses on %s\n", len(addresses), inner)
			}
			found, err := discover.Find(cmd.Context(), inner, addresses)
			if err != nil {
				return err
			}
			if err := writeOwn(file, discover.Inventory(inner, found), force); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"file": file, "inner": inner, "devices": orEmpty(found)})
			}
			a.showFound(found)
			a.say("%s: %s; look through it, then  trivet rack check %s", file, words.Plural(len(found), "device"), file)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&inner, "inner", "", "the interface to which the devices are connected (default: the one with an address but without the default route)")
	f.StringVar(&file, "file", "rack.yaml", "what to write")
	f.BoolVar(&force, "force", false, "replace the file if it exists")
	return cmd
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// innerNIC returns the given interface or, without one, the only candidate.
func innerNIC(given string) (string, error) {
	if given != "" {
		_, err := net.InterfaceByName(given)
		if err != nil {
			return "", fmt.Errorf("there is no interface %s: %s", given, words.Choose(nicsWithAddress()))
		}
		return given, nil
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return "", err
	}
	outer := slices.DeleteFunc(routes, func(r netlink.Route) bool { return r.Dst != nil && !r.Dst.IP.IsUnspecified() })
	can := slices.DeleteFunc(nicsWithAddress(), func(name string) bool {
		dev, err := net.InterfaceByName(name)
		return err != nil || slices.ContainsFunc(outer, func(r netlink.Route) bool { return r.LinkIndex == dev.Index })
	})
	if len(can) != 1 {
		return "", topology.Mistaken("--inner "+cmp.Or(strings.Join(can, ", or --inner "), "eth1"),
			"say to which interface the devices are connected")
	}
	return can[0], nil
}

// nicsWithAddress lists interfaces that are up and have an IPv4 address.
func nicsWithAddress() (out []string) {
	list, _ := net.Interfaces()
	for _, dev := range list {
		if dev.Flags&net.FlagLoopback == 0 && dev.Flags&net.FlagUp != 0 && len(segment.Addresses(dev.Name)) > 0 {
			out = append(out, dev.Name)
		}
	}
	return out
}

// writeOwn writes a file that belongs to the user who called sudo.
func writeOwn(name, text string, replace bool) error {
	flags := os.O_CREATE | os.O_WRONLY | unix.O_NOFOLLOW
	if flags |= os.O_EXCL; replace {
		flags = flags&^os.O_EXCL | os.O_TRUNC
	}
	f, err := os.OpenFile(name, flags, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if owner := lab.Owner(); owner != os.Getuid() {
		err = errors.Join(err, f.Chown(owner, -1))
	}
	return errors.Join(err, f.Close())
}

func (a *app) showFound(found []*discover.Device) {
	rows := [][]string{{"DEVICE", "ADDRESS", "MAC", "KIND", "SSH SERVER", "CALLS ITSELF", "WHY"}}
	for _, d := range found {
		kind := cmp.Or(d.Kind, "–")
		why := d.Why
		if len(d.Shared) > 0 {
			why = a.paint(red, "two have this address: "+strings.Join(d.Shared, ", ")+", too")
		}
		rows = append(rows,
			[]string{d.Name, d.Address.String(), strings.TrimSpace(d.MAC + " " + d.Vendor), kind, cmp.Or(d.Banner, "–"),
				cmp.Or(d.Host, "–"), why})
	}
	a.table(rows)
}
