package cli

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"trivet.dev/trivet/internal/version"
)

// docs writes the --help texts of all commands as pages: it generates docs/commands and the man
// pages.
func (a *app) docs() *cobra.Command {
	return &cobra.Command{
		Use: "docs markdown|man DIRECTORY", Short: "Write a page for each command", Hidden: true,
		Args: cobra.ExactArgs(2), RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			forPages(root)
			write := pageWriters[args[0]]
			if write == nil {
				return usagef("%s: write markdown or man", args[0])
			}
			if err := os.MkdirAll(args[1], 0o755); err != nil {
				return err
			}
			return write(root, args[1])
		},
	}
}

var pageWriters = map[string]func(root *cobra.Command, dir string) error{
	"markdown": doc.GenMarkdownTree,
	"man": func(root *cobra.Command, dir string) error {
		return doc.GenManTree(root,
			&doc.GenManHeader{Section: "1", Source: "Trivet " + version.Version, Manual: "Trivet"}, dir)
	},
}

// forPages makes pages the same wherever they are generated, and keeps aligned text aligned.
func forPages(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true // which would contain the date
	if f := cmd.PersistentFlags().Lookup("lab"); f != nil {
		f.DefValue = "" // not the value of TRIVET_LAB
	}
	cmd.Long = fence(cmd.Long)
	for _, c := range cmd.Commands() {
		forPages(c)
	}
}

// fence marks indented lines of a text as code in Markdown.
func fence(text string) string {
	var out []string
	code, blank := false, 0 // whether empty lines are code depends on the next line
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" {
			blank++
			continue
		}
		indented := strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t")
		if code && !indented {
			out = append(out, "```")
		}
		out = append(out, slices.Repeat([]string{""}, blank)...)
		if !code && indented {
			out = append(out, "```")
		}
		out, code, blank = append(out, line), indented, 0
	}
	if code {
		out = append(out, "```")
	}
	return strings.Join(out, "\n")
}
