package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/trivet"
)

func (a *app) link() *cobra.Command {
	cmd := &cobra.Command{
		Use: "link", Short: "Change links of a running lab", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var save bool
	var number int
	set := &cobra.Command{
		Use:   "set A-B up|down|SETTING=VALUE...",
		Short: "Take a link down or up, or set bandwidth, delay, jitter, loss, queue, MTU and others",
		Example: "  trivet link set s1-s2 down\n  trivet link set s1-s2 up delay=10ms loss=1%\n" +
			"  trivet link set s1-s2 bandwidth=none queue=none\n  trivet link set s1-s2 queue=fq_codel\n" +
			"  trivet link set s1-s2 queue=codel,target=2ms,ecn reorder=25%",
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := topology.ParseLinkChange(args[1:])
			if err != nil {
				return err
			}
			c, state, err := a.client()
			if err != nil {
				return err
			}
			info, err := c.Info(cmd.Context())
			if err != nil {
				return err
			}
			from, to, err := linkEnds(info.Topology, args[0])
			if err != nil {
				return err
			}
			if err := c.SetLink(cmd.Context(),
				lab.LinkRequest{A: from, B: to, Number: number, Change: args[1:]}); err != nil {
				return err
			}
			if save {
				return saveLink(state.File(), from, to, change)
			}
			return nil
		},
	}
	set.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) (
		[]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return a.completeLinks(cmd, prefix), cobra.ShellCompDirectiveNoFileComp
		}
		words := []string{"up", "down"}
		for _, name := range topology.LinkOptionNames() {
			words = append(words, name+"=")
		}
		return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	set.Flags().BoolVar(&save, "save", false, "also write the change into the topology's file (Trivet YAML)")
	set.Flags().IntVar(&number, "number", 1, "which one of parallel links")
	cmd.AddCommand(set, a.linkFlap())
	return cmd
}

// linkEnds finds the link that "A-B" means; node names may contain dashes themselves.
func linkEnds(t *topology.Topology, name string) (from, to string, err error) {
	var names []string
	for _, l := range t.Links {
		for i := range 2 {
			a, b := l.Ends[i].Label(), l.Ends[1-i].Label()
			if a+"-"+b == name {
				return a, b, nil
			}
		}
		names = append(names, l.Name())
	}
	hint := topology.DidYouMean(name, names)
	if hint == "" && len(names) > 0 {
		hint = "there are " + strings.Join(names[:min(5, len(names))], ", ")
	}
	return "", "", fmt.Errorf("there is no link %s; %s", name, hint)
}

func saveLink(file, from, to string, change topology.LinkChange) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("the link is changed, but not saved: %w", err)
	}
	if data, err = trivet.SetLink(data, from, to, change); err != nil {
		return fmt.Errorf("the link is changed, but not saved: %w", err)
	}
	if err := replaceFile(file, data); err != nil {
		return fmt.Errorf("the link is changed, but not saved: %w", err)
	}
	return nil
}

// replaceFile replaces a file's content, either entirely or not at all, and keeps its owner.
func replaceFile(file string, data []byte) error {
	file, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(next.Name())
	_, err = next.Write(data)
	err = errors.Join(err, next.Chmod(info.Mode()))
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		err = errors.Join(err, next.Chown(int(owner.Uid), int(owner.Gid)))
	}
	err = errors.Join(err, next.Sync(), next.Close())
	if err != nil {
		return err
	}
	return os.Rename(next.Name(), file)
}
