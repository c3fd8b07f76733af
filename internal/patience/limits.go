package patience

import "time"

// Other machines, over SSH.
var (
	// A bridge that has lost a port may have another MAC address, which the kernel finds after 8 s
	// of silence; TCP retries after 7 s and 15 s.
	Login = limit("a login by SSH", 20*time.Second)

	// A machine that reads the program from a slow card while all others of a rack start as well
	// needs seconds.
	Greeting = limit("the start of a program at another machine", time.Minute)

	// After it was asked whether it is alive. TCP itself would wait for a quarter of an hour.
	Silence = limit("a sign of life of another machine", 15*time.Second)

	// For connections within one to another machine: a live peer sends something every 5 s.
	Stream = limit("a sign of life of a program at another machine", 10*time.Second)

	// Also between two steps of something that takes longer.
	Answer = limit("an answer of another machine", 2*time.Minute)

	// While 50 MB are copied there, the time counts from the last byte taken.
	Command = limit("a command at another machine", 10*time.Minute)

	// It is silent while it changes, or runs start commands.
	PartChange = limit("a change of a part of a lab", 10*time.Minute)

	// For coming up, going down or being resumed, even if there is progress.
	PartWhole = limit("a part of a lab to come up or go down", time.Hour)

	// What the machine does not report within this time is not shown.
	Overview = limit("what another machine says of itself", 5*time.Second)

	// How soon a live machine says that it does not know a connection.
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

	// An agent wires new ports one after the other, and has to query Neutron.
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

	// For an interface that had one before.
	CarrierBack = limit("a carrier to come back", 5*time.Second)

	// On some channels, access points must listen for radar first.
	AccessPoint = limit("an access point", 75*time.Second)

	// Hosts whose solicitations get no answer repeat them after 4 s and 8 s.
	Autoconfigured = limit("addresses by router advertisements", 20*time.Second)

	Addresses = limit("the addresses of nodes", 10*time.Second)

	// A lab's devices are deleted in one request, and each of its bridges takes 20 ms.
	Kernel = limit("an answer of the kernel", 2*time.Minute)

	DirLock = limit("a lock on a directory", time.Minute) // nobody holds one for long

	// A child that a killed process was just forking also holds its locks, until it executes
	// another program.
	FileLock = limit("a lock on a file", 2*time.Second)

	// Each time, another lab may be the last that goes down.
	LabGroup = limit("a cgroup that others remove", 10*time.Second)

	// It waits until the switch has carried out the change, which takes seconds for large ones.
	OpenVSwitch = limit("an answer of the machine's Open vSwitch", 30*time.Second)

	// The guest sees it a moment after the hypervisor.
	Attached = limit("an interface that was attached to the machine", 30*time.Second)

	// It answers at once, but has its own locks.
	Engine = limit("an answer of a container engine", 20*time.Second)

	// It may ask its user first, on a screen.
	LoginHelper = limit("a program that keeps a login", time.Minute)

	// For the last of a hundred that are made at once.
	Container = limit("a container engine to make or remove a container", 5*time.Minute)

	// For a program in a node, at the port to which one of the machine leads.
	Published = limit("a program in a node to take a connection", 20*time.Second)

	Healthy = limit("a container to be healthy", 2*time.Minute)

	Supplicant = limit("an answer of hostapd or wpa_supplicant", 5*time.Second)

	// A station joins its network; after that, the user is notified that it has not.
	Join = limit("a station to join its network", 20*time.Second)
)

// Labs' daemons and the programs in labs.
var (
	DaemonBegin = limit("a daemon that root may be starting", 10*time.Second) // only root can tell whether one is
	DaemonEnd   = limit("the end of a daemon that could not begin", 5*time.Second)
	KilledEnd   = limit("the end of a process that was killed", 10*time.Second)

	// The kernel releases the devices and maps of a process's threads before they end, which takes
	// seconds on a busy machine.
	ProcessEnd = limit("the end of a process", time.Minute)

	// For a command that starts, resumes or removes a lab, until the lab can be asked.
	LabLock = limit("a command about the same lab", time.Minute)

	RunLock = limit("a command that begins a lab", 5*time.Second) // it needs microseconds

	// For the command that started a lab to ask why it has failed.
	FirstFollow = limit("the question why a lab has failed", 10*time.Second)

	// Even if it may be without its head for less: the head leads it only once it is up.
	ComingUp = limit("a part of a lab to come up", 10*time.Minute)

	Named = limit("the name of the controller that a switch is connected to", 10*time.Second)

	// Whether a lab's daemon is alive at all, whatever else it is doing: it needs microseconds.
	Daemon = limit("a sign of life of a lab's process", 10*time.Second)

	// In a namespace it needs 50 ms, in a virtual machine seconds; in a frozen one it never
	// answers.
	Brought     = limit("the program in a virtual machine, into which it is brought", 2*time.Minute)
	NodeProgram = limit("a program in a node to begin", 20*time.Second)

	NodeCommand = limit("a node's start, stop or scheduled command", 30*time.Second)

	// To follow a change of the lab, and a millisecond for each node.
	Follow = limit("the controller", 20*time.Second)

	// RabbitMQ needs 5 s, and the others less than one.
	ClusterStart = limit("a cluster of controllers to begin", time.Minute)

	// It may have to configure its apps anew for a large topology.
	MemberAnswer = limit("an answer of a member of the cluster", 30*time.Second)

	// Whether it answers at all; otherwise another is asked.
	MemberAlive = limit("a sign of life of a member of the cluster", 3*time.Second)

	// It waits itself up to 10 s until the others have its switches.
	MemberEnd = limit("a member of the cluster to end", 20*time.Second)

	// To be alive and connected to all switches, each of which has a master.
	MemberWhole = limit("a member of the cluster to have all switches", time.Minute)

	// LoadReports is for the load reports of a cluster's members, one every two seconds, at the
	// end of a measurement that may have left them no processor.
	LoadReports = limit("load reports of the members of the cluster", 20*time.Second)

	// In addition to the links' delays: hosts repeat neighbour discovery after one second.
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

	// By KVM, a kernel finds within a second or two that it has no root. On some machines with
	// /dev/kvm, kernels hang.
	KVM = limit("a kernel that boots by KVM", 10*time.Second)
)

// Controllers and switches.
var (
	// For a request; a switch that does not answer is reported sooner.
	Query = limit("an answer to a question", 30*time.Second)

	// For etcd, which elects another leader within a second or two.
	Store = limit("an answer of the controller's store", 10*time.Second)

	// For RabbitMQ to accept a member; after that, heartbeats show whether it is alive.
	Broker = limit("an answer of the broker", 10*time.Second)

	// Its flow entries or its controllers. One that hangs never answers.
	SwitchSays = limit("what a switch says of itself", 10*time.Second)

	OpenFlow = limit("the handshake of an OpenFlow connection", 10*time.Second)

	// For a lab that comes up: --wait. It is not extended, as users choose it.
	Ready = limit("controllers and routers of a lab that comes up", 10*time.Second)

	ControllerStart = limit("a controller to listen", 10*time.Second)
	Version         = limit("a controller to say its version", 10*time.Second)

	// After this it counts as not running.
	Refusing = limit("a controller that refuses connections", 3*time.Second)

	// For one with the same datapath id, until the apps know that it is gone.
	Leaving = limit("a switch that was taken away", 10*time.Second)

	// One that does not answer in time does not hold up the others.
	Routes = limit("a router to confirm its routes", 2*time.Second)

	// As long as it takes to notice that a member has died.
	Rounds = limit("routes of another member", time.Second)
	// After this it keeps what it has, and the others are routed around it.
	Paths = limit("a switch to confirm its paths", 2*time.Second)

	Barrier = limit("a switch to answer a barrier", 5*time.Second)

	// Some routers may not answer, and some networks never converge.
	Installed = limit("routers to follow a change of routes", 10*time.Second)
)

// Experiments.
var (
	ExperimentUp   = limit("an experiment's lab to come up", 5*time.Minute)
	ExperimentDown = limit("an experiment's lab to go down", 2*time.Minute)
)
