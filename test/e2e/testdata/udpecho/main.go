// Command udpecho answers what comes to a UDP port with its first argument, and what came.
package main

import (
	"log"
	"net"
	"os"
)

func main() {
	conn, err := net.ListenPacket("udp4", os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := conn.WriteTo(append([]byte(os.Args[1]+" "), buffer[:n]...), from); err != nil {
			log.Print(err)
		}
	}
}
