package main

// Apps of your own for Trivet's controller, one line each. docs/controller.md, "Writing an app",
// says how to write them.
import (
// _ "trivet.dev/trivet/examples/mute"
)
