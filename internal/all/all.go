// Package all registers everything that labs can be made of: the program imports it, and so do
// tests that bring labs up.
package all

import (
	_ "trivet.dev/trivet/datapath/all"
	_ "trivet.dev/trivet/site/openstack"
	_ "trivet.dev/trivet/target/container"
	_ "trivet.dev/trivet/target/guest"
	_ "trivet.dev/trivet/target/local"
	_ "trivet.dev/trivet/target/openwrt"
	_ "trivet.dev/trivet/target/sites"
)
