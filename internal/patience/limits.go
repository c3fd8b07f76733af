package patience

import "time"

// Other machines, over SSH.
var (
	// A bridge that has lost a port may have another MAC address, which the kernel finds after 8 s
	// of silence; TCP asks after 7 s and 15 s.
	Login = limit("a login by SSH", 20*time.Second)

	// A machine that reads the program from a slow card, with all others of a rack beginning as
	// well, needs seconds.
	Greeting = limit("the start of a program at another machine", time.Minute)

	// Though it was asked whether it is there. TCP itself would wait for a quarter of an hour.
	Silence = limit("a sign of life of another machine", 15*time.Second)

	// Of the connections within one to another machine: what is there sends something every 5 s.
	Stream = limit("a sign of life of a program at another machine", 10*time.Second)

	// Also between two steps of something that takes longer.
	Answer = limit("an answer of another machine", 2*time.Minute)

	// Of what is brought there, 50 MB, the time counts from the last byte that was taken.
	Command = limit("a command at another machine", 10*time.Minute)

	// It says nothing while it changes, or runs start commands.
	PartChange = limit("a change of a part of a lab", 10*time.Minute)

	// Coming up, going down or being resumed, whatever it says meanwhile.
	PartWhole = limit("a part of a lab to come up or go down", time.Hour)

	// What the machine does not say within this time is not shown.
	Overview = limit("what another machine says of itself", 5*time.Second)

	// How soon a machine that is there says that it knows nothing of a connection.
	Reset = limit("a refusal of a connection", 5*time.Second)

	Examination = limit("an examination of a device", time.Minute)

	// Its script waits up to 20 s for each port.
	DeviceDown = limit("a device to become what it was", 5*time.Minute)
)

// Clouds.
var (
	// Making a port, or the interface of a router, takes a busy Neutron many seconds.
	Cloud = limit("an answer of a cloud's service", 2*time.Minute)

	// Where processors are emulated, a guest boots for a minute, and others boot beside it.
	Instance = limit("an instance to boot and let us in", 10*time.Minute)

	// An agent wires new ports one after the other, and asks Neutron for what it needs to know.
	Wired = limit("a cloud to wire a port", 5*time.Minute)

	// Neutron's L3 agent sets routes within seconds of having plugged a router's ports.
	Forwarding = limit("a cloud's routers to forward", 30*time.Second)

	// Also what Neutron does for a port before that may be deleted.
	CloudRemoves = limit("a cloud to remove an instance", 5*time.Minute)
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

	// Who has asked in vain asks again after 4 s, and 8 s later.
	Autoconfigured = limit("addresses by router advertisements", 20*time.Second)

	Addresses = limit("the addresses of nodes", 10*time.Second)

	// A lab's devices are deleted in one request, and each of its bridges takes 20 ms.
	Kernel = limit("an answer of the kernel", 2*time.Minute)

	DirLock = limit("a lock on a directory", time.Minute) // nobody holds one for long

	// A child that a killed process was just forking has its locks, too, until it runs another
	// program.
	FileLock = limit("a lock on a file", 2*time.Second)

	// Each time another lab may be the last that goes down.
	LabGroup = limit("a cgroup that others remove", 10*time.Second)

	// It waits until the switch has what was asked for, which takes seconds where there is much.
	OpenVSwitch = limit("an answer of the machine's Open vSwitch", 30*time.Second)

	// The guest has it a moment after the hypervisor does.
	Attached = limit("an interface that was attached to the machine", 30*time.Second)

	// It answers at once, but has its own locks.
	Engine = limit("an answer of a container engine", 20*time.Second)

	// It may ask its user first, on a screen.
	LoginHelper = limit("a program that keeps a login", time.Minute)

	// Of a hundred that are made at once, the last one.
	Container = limit("a container engine to make or remove a container", 5*time.Minute)

	// Of a program in a node, at the port that one of the machine leads to.
	Published = limit("a program in a node to take a connection", 20*time.Second)

	Healthy = limit("a container to be healthy", 2*time.Minute)

	Supplicant = limit("an answer of hostapd or wpa_supplicant", 5*time.Second)

	// Before somebody is told that a station has not joined its network.
	Join = limit("a station to join its network", 20*time.Second)
)

// Labs' daemons and the programs in labs.
var (
	DaemonBegin = limit("a daemon that root may be starting", 10*time.Second) // only root can tell whether one is
	DaemonEnd   = limit("the end of a daemon that could not begin", 5*time.Second)
	KilledEnd   = limit("the end of a process that was killed", 10*time.Second)

	// The kernel takes back a process's threads' devices and maps before they end, which takes
	// seconds on a busy machine.
	ProcessEnd = limit("the end of a process", time.Minute)

	// Of a command that starts, resumes or removes a lab, until the lab can be asked.
	LabLock = limit("a command about the same lab", time.Minute)

	RunLock = limit("a command that begins a lab", 5*time.Second) // it needs microseconds

	// Of a lab that has failed, for the command that started it.
	FirstFollow = limit("the question why a lab has failed", 10*time.Second)

	// It may be without its head for less: the head leads it only when it is up.
	ComingUp = limit("a part of a lab to come up", 10*time.Minute)

	Named = limit("the name of the controller that a switch is connected to", 10*time.Second)

	// Whether a lab's daemon is there at all, whatever else it is doing: it needs microseconds.
	Daemon = limit("a sign of life of a lab's process", 10*time.Second)

	// In a namespace it needs 50 ms, in a virtual machine seconds; one that is frozen never does.
	Brought     = limit("the program in a virtual machine, into which it is brought", 2*time.Minute)
	NodeProgram = limit("a program in a node to begin", 20*time.Second)

	NodeCommand = limit("a node's start, stop or scheduled command", 30*time.Second)

	// To follow a change of the lab, and a millisecond for each node.
	Follow = limit("the controller", 20*time.Second)

	// RabbitMQ needs 5 s, and the others less than one.
	ClusterStart = limit("a cluster of controllers to begin", time.Minute)

	// It may have to configure its apps anew for a large topology.
	MemberAnswer = limit("an answer of a member of the cluster", 30*time.Second)

	// Whether it answers at all; else another is asked.
	MemberAlive = limit("a sign of life of a member of the cluster", 3*time.Second)

	// It waits itself for 10 s until the others have its switches.
	MemberEnd = limit("a member of the cluster to end", 20*time.Second)

	// To be alive and connected to all switches, each of which has a master.
	MemberWhole = limit("a member of the cluster to have all switches", time.Minute)

	// LoadReports is for the members of a lab's cluster to have told of their loads, each two
	// seconds, at the end of a measurement that may have left them no processor.
	LoadReports = limit("load reports of the members of the cluster", 20*time.Second)

	// Beyond the links' delays: hosts repeat a request for a neighbour's address after one second.
	Reply = limit("a reply to a ping", 3*time.Second)

	Iperf = limit("iperf3, beyond the time that it measures", 15*time.Second)
)

// Routers' daemons and virtual machines. QEMU without KVM, on a machine that brings up dozens of
// virtual machines, is slow.
var (
	RoutingDaemon = limit("a routing daemon", 20*time.Second)
	Terminated    = limit("the end of a routing daemon", 5*time.Second) // then it is killed
	Boot          = limit("a virtual machine to boot", 10*time.Minute)
	GuestProgram  = limit("a program in a virtual machine", 10*time.Minute)
	Unplugged     = limit("a guest to let go of an interface", 20*time.Second)
	Agent         = limit("the greeting of a virtual machine's agent", 20*time.Second)
	Machine       = limit("an answer of QEMU, or of a virtual machine's agent", 30*time.Second)

	// A kernel finds that it has no root within a second or two by KVM. There are machines that
	// have /dev/kvm and on which kernels hang.
	KVM = limit("a kernel that boots by KVM", 10*time.Second)
)

// Controllers and switches.
var (
	// Of one that is asked something; a switch that does not answer is reported sooner.
	Query = limit("an answer to a question", 30*time.Second)

	// Of etcd, which elects another leader within a second or two.
	Store = limit("an answer of the controller's store", 10*time.Second)

	// Of RabbitMQ, to let a member in; after that its heartbeats say whether it is there.
	Broker = limit("an answer of the broker", 10*time.Second)

	// Its flow entries, its controllers. One that stands still never tells.
	SwitchSays = limit("what a switch says of itself", 10*time.Second)

	OpenFlow = limit("the handshake of an OpenFlow connection", 10*time.Second)

	// Of a lab that comes up: --wait. It does not grow: a user says so.
	Ready = limit("controllers and routers of a lab that comes up", 10*time.Second)

	ControllerStart = limit("a controller to listen", 10*time.Second)
	Version         = limit("a controller to say its version", 10*time.Second)

	// Then it is taken not to be running.
	Refusing = limit("a controller that refuses connections", 3*time.Second)

	// Of one with the same datapath id, until the apps have been told that it is gone.
	Leaving = limit("a switch that was taken away", 10*time.Second)

	// One that does not answer in time does not hold up the others.
	Routes = limit("a router to confirm its routes", 2*time.Second)

	// It has as long as it takes to miss one that has died.
	Rounds = limit("routes of another member", time.Second)
	// Then it keeps what it has, and the others are led around it.
	Paths = limit("a switch to confirm its paths", 2*time.Second)

	Barrier = limit("a switch to answer a barrier", 5*time.Second)

	// There may be routers that do not answer, and networks that never come to rest.
	Installed = limit("routers to follow a change of routes", 10*time.Second)
)

// Experiments.
var (
	ExperimentUp   = limit("an experiment's lab to come up", 5*time.Minute)
	ExperimentDown = limit("an experiment's lab to go down", 2*time.Minute)
)
