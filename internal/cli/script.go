package cli

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// A topology file that is a program takes arguments: trivet up net.py 3 --bw 10. After the program,
// flags that Trivet's command has are Trivet's until another word comes; that word, and all after
// it, are the program's.

// takesScripts are the commands whose argument may be such a program.
var takesScripts = []string{"up", "apply", "validate", "inspect", "graph", "convert"}

func isScript(file string) bool { return strings.EqualFold(filepath.Ext(file), ".py") }

// endFlags inserts "--" before a program's own arguments, so that none is taken as a flag of
// Trivet's.
func endFlags(root *cobra.Command, args []string) []string {
	cmd, rest, err := root.Find(args)
	if err != nil || cmd.Parent() != root || !slices.Contains(takesScripts, cmd.Name()) {
		return args
	}
	cmd.InheritedFlags() // makes the root's flags known to the command
	first := len(args) - len(rest)
	words, script := 0, false
	for i := first; i < len(args); i++ {
		word := args[i]
		switch {
		case word == "--":
			return args
		case strings.HasPrefix(word, "-") && word != "-":
			flag, hasValue := flagOf(cmd, word)
			if flag == nil {
				if script {
					return slices.Insert(slices.Clone(args), i, "--")
				}
				return args // the command reports the error
			}
			if !hasValue && flag.NoOptDefVal == "" {
				i++
			}
		case script && (cmd.Name() != "convert" || words > 1) && cmd.Name() != "validate":
			return slices.Insert(slices.Clone(args), i, "--")
		default:
			words++
			script = script || isScript(word)
		}
	}
	return args
}

// flagOf returns the command's flag that a word stands for, and whether the word includes its
// value.
func flagOf(cmd *cobra.Command, word string) (flag *pflag.Flag, hasValue bool) {
	name, long := strings.CutPrefix(word, "--")
	if long {
		name, _, hasValue = strings.Cut(name, "=")
		if name == "help" {
			cmd.InitDefaultHelpFlag()
		}
		return cmd.Flags().Lookup(name), hasValue
	}
	cmd.InitDefaultHelpFlag()
	return cmd.Flags().ShorthandLookup(word[1:2]), len(word) > 2
}

// scriptArgs allows least to n arguments, and any number of further ones if the first is a program.
func scriptArgs(least, n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n && isScript(args[0]) {
			return nil
		}
		return cobra.RangeArgs(least, n)(cmd, args)
	}
}

// mistaken warns about arguments of a program that look like Trivet's own flags.
func (s *source) mistaken(file string, args []string) (problems topology.Problems) {
	for _, a := range args {
		name, isFlag := strings.CutPrefix(a, "--")
		name, _, _ = strings.Cut(name, "=")
		if isFlag && name != "" && s.command != nil && s.command.Flags().Lookup(name) != nil {
			problems.Warn(topology.Position{File: file}, "Trivet's own flags go before the script's arguments",
				"the script gets %s", a)
		}
	}
	return problems
}

// sources splits the arguments of validate into files. A program is followed by its arguments:
// words that do not end like a topology file's name, and everything after "--".
func sources(cmd *cobra.Command, args []string) (files [][]string) {
	dash := cmd.ArgsLenAtDash()
	for i, word := range args {
		_, unknown := formats.ForFile(word, nil)
		last := len(files) - 1
		if last >= 0 && isScript(files[last][0]) && (unknown != nil || dash >= 0 && i >= dash) {
			files[last] = append(files[last], word)
		} else {
			files = append(files, []string{word})
		}
	}
	return files
}
