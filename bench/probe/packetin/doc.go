// Package packetin counts the packets that switches give to their controller, by protocol,
// whichever controller that is: it listens to the OpenFlow connections on their way through the
// kernel, and neither switch nor controller knows of it.
//
// A packet socket gets what is sent to the controllers' TCP ports (tap.go), gopacket puts segments
// in order, and stream.go cuts the streams into messages. What a PACKET_IN holds is classified by
// controller/monitor, as Trivet's own controller does it. Where a segment was not seen, the stream
// is taken up again at the next message that can be recognised, and what is missing is counted: see
// Counts. TLS cannot be listened to.
package packetin
