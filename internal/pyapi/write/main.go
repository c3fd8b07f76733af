// Command write writes the Python client of the lab's API.
package main

import (
	"fmt"
	"os"

	"trivet.dev/trivet/internal/pyapi"
	"trivet.dev/trivet/lab"
)

func main() {
	document, err := lab.OpenAPI()
	if err == nil {
		var text []byte
		if text, err = pyapi.Source(document); err == nil {
			err = os.WriteFile(os.Args[1], text, 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
