package lab

import _ "trivet.dev/trivet/datapath/all" // what labs can be made of
