// Package all registers every file format.
package all

import (
	_ "trivet.dev/trivet/topology/formats/c3edge"
	_ "trivet.dev/trivet/topology/formats/clab"
	_ "trivet.dev/trivet/topology/formats/graphml"
	_ "trivet.dev/trivet/topology/formats/kathara"
	_ "trivet.dev/trivet/topology/formats/miniedit"
	_ "trivet.dev/trivet/topology/formats/mininet"
	_ "trivet.dev/trivet/topology/formats/trivet"
)
