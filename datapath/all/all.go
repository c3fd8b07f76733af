// Package all has all datapaths: a new one is a line here.
package all

import (
	_ "trivet.dev/trivet/datapath/bridge"
	_ "trivet.dev/trivet/datapath/config"
	_ "trivet.dev/trivet/datapath/embedded/fabric"
	_ "trivet.dev/trivet/datapath/linux"
	_ "trivet.dev/trivet/datapath/ovs"
)
