package cli

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/topology"
)

// bashFunctions are the functions that cobra's script for bash expects from the package
// bash-completion.
//
//go:embed completion.bash
var bashFunctions string

// completeBare makes completion in bash work without that package.
func completeBare(root *cobra.Command) {
	bash, _, err := root.Find([]string{"completion", "bash"})
	if err != nil || bash.RunE == nil {
		return
	}
	write := bash.RunE
	bash.RunE = func(cmd *cobra.Command, args []string) error {
		fmt.Fprint(cmd.Root().OutOrStdout(), bashFunctions)
		return write(cmd, args)
	}
}

// completeSources offers generators to the shell, which completes files itself.
func completeSources(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 {
		for _, g := range topology.Generators() {
			names = append(names, g.Name+"\t"+g.Description)
		}
	}
	return names, cobra.ShellCompDirectiveDefault
}

// completeLabsAndSources offers labs that are up, too.
func (a *app) completeLabsAndSources(cmd *cobra.Command, args []string,
	prefix string) ([]string, cobra.ShellCompDirective) {
	names, directive := completeSources(cmd, args, prefix)
	if len(args) == 0 {
		labs, _ := a.completeLabs(cmd, args, prefix)
		names = append(labs, names...)
	}
	return names, directive
}

// completeFlag offers the values that a flag can have.
func completeFlag(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag,
		func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
			before := prefix[:strings.LastIndexByte(prefix, ',')+1] // within a list: none,trivet
			out := make([]string, len(values))
			for i, v := range values {
				out[i] = before + v
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		})
}
