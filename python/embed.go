// Package python is the Python packages. Of those, the program itself has what reading a Mininet
// script needs, too.
package python

import _ "embed"

// Topo and Topolib are the sources of mininet.topo and mininet.topolib, which make nothing but
// names.
var (
	//go:embed mininet/topo.py
	Topo string
	//go:embed mininet/topolib.py
	Topolib string
)
