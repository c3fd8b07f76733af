package patience

import "time"

// Other machines, over SSH.
var (
	// A bridge that has lost a port may have another MAC address, which the kernel finds after 8 s of
	// silence; TCP asks after 7 s and 15 s.
	Login = limit("a login by SSH", 20*time.Second)

	// A machine that reads the program from a slow card, with all others of a rack beginning as well,
	// needs seconds.
	Greeting = limit("the start of a program at another machine", time.Minute)

	// Though it was asked whether it is there. TCP itself would wait for a quarter of an hour.
	Silence = limit("a sign of life of another machine", 15*time.Second)

	// Of the connections within one to another machine: what is there sends something every 5 s.
	Stream = limit("a sign of life of a program at another machine", 10*time.Second)

	// Also between two steps of something that takes longer.
	Answer = limit("an answer of another machine", 2*time.Minute)

	// The longest is the program's way there, 50 MB.
	Command = limit("a command at another machine", 10*time.Minute)

	// It says nothing while it changes, or runs start commands.
	PartChange = limit("a change of a part of a lab", 10*time.Minute)

	// What the machine does not say within this time is not shown.
	Overview = limit("what another machine says of itself", 5*time.Second)

	// How soon a machine that is there says that it knows nothing of a connection.
	Reset = limit("a refusal of a connection", 5*time.Second)

	Examination = limit("an examination of a device", time.Minute)

	// Its script waits up to 20 s for each port.
	DeviceDown = limit("an OpenWrt device going down", 5*time.Minute)
)

// This machine's kernel and programs.
var (
	// The kernel notices a carrier some time after the other end has come up; negotiation takes
	// seconds. One whose link has no far end never comes.
	Carrier = limit("a carrier", 20*time.Second)

	// Of an interface that had one before.
	CarrierBack = limit("a carrier to come back", 5*time.Second)

	// On some channels, access points must listen for radar first.
	AccessPoint = limit("an access point", 75*time.Second)

	Supplicant = limit("an answer of hostapd or wpa_supplicant", 5*time.Second)

	// Before somebody is told that a station has not joined its network.
	Join = limit("a station to join its network", 20*time.Second)
)
