package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trivet.dev/trivet/topology"
)

// usageError says that a command line was malformed.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// speakPlainly replaces the library's messages about arguments and flags by ours, for a command and
// all its subcommands.
func speakPlainly(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return corrected(cmd, args, argumentError(cmd, args, err))
			}
			return nil
		}
	}
	if run := cmd.RunE; run != nil && !cmd.DisableFlagParsing {
		cmd.RunE = func(cmd *cobra.Command, args []string) error { return corrected(cmd, args, run(cmd, args)) }
	}
	cmd.SetFlagErrorFunc(flagError)
	for _, c := range cmd.Commands() {
		speakPlainly(c)
	}
}

// elsewhere maps words that users know from other programs to the commands of Trivet's that do the
// same. Protocols add theirs.
var elsewhere = map[string]string{
	"pingall": "ping --all", "status": "ls", "list": "ls", "ps": "ls", "show": "inspect", "info": "inspect",
	"nodes": "inspect", "links": "inspect", "net": "inspect", "dump": "inspect", "start": "up", "create": "up",
	"deploy": "up", "stop": "down", "destroy": "down", "delete": "down", "kill": "down", "clean": "down",
	"attach": "shell", "ssh": "shell", "login": "shell", "draw": "graph", "plot": "graph", "check": "validate",
	"log": "logs", "route": "routes", "flow": "flows", "dump-flows": "flows", "tcpdump": "capture", "sniff": "capture",
	"xterm": "shell", "prompt": "cli", "version": "--version", "set": "link set", "flap": "link flap", "monitor": "top",
}

func argumentError(cmd *cobra.Command, args []string, err error) error {
	if cmd.HasSubCommands() && len(args) > 0 {
		word := strings.ToLower(args[0])
		if !cmd.HasParent() {
			if at := elsewhere[word]; at != "" {
				return usagef("there is no command %s; you may want  trivet %s", args[0], at)
			}
		}
		var names []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				names = append(names, c.Name())
			}
		}
		hint := cmp.Or(topology.DidYouMean(word, names), cmd.CommandPath()+" --help lists them")
		if cmd.Name() == "link" && strings.Contains(word, "-") && len(args) > 1 {
			hint = "write  trivet link set " + strings.Join(args, " ")
		}
		return usagef("there is no command %s; %s", strings.TrimPrefix(cmd.CommandPath()+" "+args[0], "trivet "), hint)
	}
	switch text := err.Error(); {
	case strings.HasPrefix(text, "unknown command"):
		return usagef("%s takes no arguments; %q is one too many", cmd.CommandPath(), args[0])
	case strings.HasPrefix(text, "accepts at most"):
		return usagef("too many arguments: %s", strings.Join(args, " "))
	case strings.HasPrefix(text, "accepts "), strings.HasPrefix(text, "requires "):
		if len(args) == 0 {
			return usagef("arguments are missing")
		}
		if most := strings.Count(strings.ReplaceAll(cmd.Use, "[flags]", ""), " "); len(args) > most &&
			!strings.Contains(cmd.Use, "...") {
			return usagef("too many arguments: %s", strings.Join(args, " "))
		}
		return usagef("an argument is missing after %s", args[len(args)-1])
	}
	return usageError{err}
}

// kinds says how to write a flag's value, by the library's name for its type.
var kinds = map[string]string{
	"int": "a whole number, such as 5", "int64": "a whole number, such as 5", "uint64": "a whole number, 0 or more",
	"uint16": "a number from 0 to 65535", "float64": "a number, such as 0.5",
	"duration": "a time with its unit, such as 10s, 250ms or 1m30s", "bool": "true or false",
}

func flagError(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &value):
		f := value.GetFlag()
		if kind := kinds[f.Value.Type()]; kind != "" {
			return usagef("--%s %s: write %s", f.Name, value.GetValue(), kind)
		}
		return usagef("--%s %s: %w", f.Name, value.GetValue(), errors.Unwrap(value))
	case errors.As(err, &missing):
		return usagef("--%s needs a value: %s", missing.GetFlag().Name, missing.GetFlag().Usage)
	case errors.As(err, &unknown):
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		slices.Sort(names)
		name := "--" + unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			name = "-" + unknown.GetSpecifiedName()
		}
		if hint := topology.DidYouMean(unknown.GetSpecifiedName(), names); hint != "" && strings.HasPrefix(name, "--") {
			return usagef("%s has no flag %s; %s", cmd.CommandPath(), name,
				strings.Replace(hint, "mean ", "mean --", 1))
		}
		return usagef("%s has no flag %s", cmd.CommandPath(), name)
	}
	return usageError{err}
}
