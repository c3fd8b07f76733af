// Command trivet brings a network topology up, controls it and measures it.
package main

import (
	"fmt"
	"os"

	"trivet.dev/trivet/bench/drive"
	"trivet.dev/trivet/bench/probe/call"
	"trivet.dev/trivet/bench/probe/clock"
	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/bench/tune"
	"trivet.dev/trivet/bench/verify"
	"trivet.dev/trivet/datapath/embedded/fabric"
	"trivet.dev/trivet/datapath/vm"
	_ "trivet.dev/trivet/internal/all"
	"trivet.dev/trivet/internal/cli"
	"trivet.dev/trivet/internal/fib"
	"trivet.dev/trivet/internal/leader"
	"trivet.dev/trivet/internal/qemu"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/container"
	"trivet.dev/trivet/target/guest"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/target/sites"
)

func main() {
	local.StandsForTools = true
	if len(os.Args) > 1 {
		switch os.Args[1] { // roles in which the program starts itself; reading Mininet scripts has another
		case lab.DaemonCommand:
			exit(lab.RunDaemon(os.Args[2]))
		case lab.KeeperCommand:
			exit(lab.RunKeeper(os.Args[2]))
		case site.Command:
			exit(sites.Serve(os.Args[2:]))
		case local.InitCommand:
			exit(local.RunInit())
		case container.EnterCommand:
			os.Exit(container.Enter(os.Args[2:]))
		case leader.Command:
			exit(leader.Run(os.Args[2:]))
		case fabric.VSwitchCommand:
			os.Exit(cli.VSwitch(os.Args[2:]))
		case local.ToolCommand:
			os.Exit(cli.Tool(os.Args[2:]))
		case vm.GuestCommand:
			vm.RunGuest(os.Args[2:])
		case vm.ExecCommand:
			os.Exit(vm.Exec(os.Args[2:]))
		case guest.ExecCommand:
			os.Exit(guest.Exec(os.Args[2:]))
		case qemu.ConsoleCommand:
			exit(guest.Console(os.Args[2:]))
		case tune.AwakeCommand:
			exit(tune.Awake(os.Args[2]))
		case packets.Command:
			exit(packets.Serve(os.Stdin, os.Stdout))
		case call.Command:
			exit(call.Serve(os.Stdin, os.Stdout))
		case verify.LookCommand:
			exit(verify.Look(os.Stdout))
		case clock.Command:
			exit(clock.Serve(os.Stdin, os.Stdout))
		case fib.Command:
			exit(fib.Serve(os.Args[2:], os.Stdout))
		case drive.SuperviseCommand:
			exit(drive.Supervise(os.Args[2:]))
		}
	}
	os.Exit(cli.Main())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "trivet:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
