// Command faults is an HTTP proxy that answers some requests as a cloud does that is busy, broken
// or far away. A client takes it for its proxy:
//
//	faults 127.0.0.1:8888 faults.json &
//	http_proxy=http://127.0.0.1:8888 openstack server list
//
// The file has a fault in each line, and may change at any time; README.md beside the stack says
// what a line has. What it counts for a line it forgets with the line. Each request is a line of
// standard output, once it is answered.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: faults ADDRESS:PORT FILE")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func serve(address, file string, log io.Writer) error {
	if _, err := readFaults(file); err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: newProxy(file, json.NewEncoder(log)), ReadHeaderTimeout: time.Minute}
	return server.Serve(l)
}
