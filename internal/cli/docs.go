package cli

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"trivet.dev/trivet/internal/version"
)

// docs writes what --help says of all commands as pages: docs/commands and the man pages are made
// by it.
func (a *app) docs() *cobra.Command {
	return &cobra.Command{
		Use: "docs markdown|man DIRECTORY", Short: "Write a page for each command", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
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
		return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Trivet " + version.Version, Manual: "Trivet"}, dir)
	},
}

// forPages makes commands say the same wherever the pages are written, and what is aligned in their
// texts stay so.
func forPages(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true // the day on which it was written
	if f := cmd.PersistentFlags().Lookup("lab"); f != nil {
		f.DefValue = "" // not TRIVET_LAB
	}
	cmd.Long = fence(cmd.Long)
	for _, c := range cmd.Commands() {
		forPages(c)
	}
}

// fence makes indented lines of a text code of Markdown.
func fence(text string) string {
	var out []string
	code, blank := false, 0 // empty lines are neither, until the next line says which
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
