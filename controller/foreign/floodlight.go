package foreign

import (
	"archive/zip"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/topology"
)

// floodlightEnv is the environment variable with the path of Floodlight's jar.
const floodlightEnv = "TRIVET_FLOODLIGHT"

// floodlight is Floodlight with its learning switch, in one jar with all dependencies, as its build
// makes it (target/floodlight.jar). It is in no package registry.
var floodlight = &Controller{
	Name: "floodlight", What: "Floodlight, with its module LearningSwitch", OpenFlow: "1.3", Embedded: "1.3",
	Install: "git clone https://github.com/floodlight/floodlight %s, build it as its README.md says (target/floodlight.jar), " +
		"or name the jar: " + floodlightEnv + "=/path/floodlight.jar",
	Greets: true,
	find: func(own string) ([]string, bool) {
		java, ok := firstOf("java")
		jar, err := floodlightJar(own)
		// Switches connect over IPv4. Java's performance counters would be files in /tmp that stay
		// when it is killed.
		return []string{java, "-Djava.net.preferIPv4Stack=true", "-XX:-UsePerfData", "-cp",
			jar}, ok && err == nil && jar != ""
	},
	lacks: func(own string) error {
		jar, err := floodlightJar(own)
		if _, ok := firstOf("java"); err == nil && jar != "" && !ok {
			return lack.New("Java, by which floodlight runs, is not installed", ":  ",
				"apt install default-jre-headless")
		}
		return err
	},
	files: func(*topology.Topology, []*topology.Node) (map[string][]byte, error) {
		return map[string][]byte{"floodlight.properties": []byte(floodlightProperties)}, nil
	},
	run: func(port int, _ string) (args, env []string) {
		return []string{"-D" + floodlightPort + "=" + number(port), "net.floodlightcontroller.core.Main", "-cf",
			"floodlight.properties"}, nil
	},
	says: func(program []string) (string, error) { return jarVersion(program[len(program)-1]) },
}

// floodlightPort is the setting for the switches' TCP port. A system property takes precedence over
// the file (FloodlightModuleLoader.java, parseConfigParameters). FloodlightProvider has a setting
// of that name, too, which nothing reads.
const floodlightPort = "net.floodlightcontroller.core.internal.OFSwitchManager.openFlowPort"

// floodlightProperties loads only the modules that a learning switch needs; the REST server is one,
// because Floodlight's main program requires it. Its listeners are for the lab's switches only.
// Without the versions it would offer OpenFlow 1.5.
const floodlightProperties = `floodlight.modules=\
net.floodlightcontroller.core.internal.FloodlightProvider,\
net.floodlightcontroller.storage.memory.MemoryStorageSource,\
net.floodlightcontroller.threadpool.ThreadPool,\
net.floodlightcontroller.debugcounter.DebugCounterServiceImpl,\
net.floodlightcontroller.perfmon.PktInProcessingTime,\
net.floodlightcontroller.restserver.RestApiServer,\
net.floodlightcontroller.learningswitch.LearningSwitch
net.floodlightcontroller.core.internal.OFSwitchManager.openFlowAddresses=127.0.0.1
` + floodlightPort + `=6653
net.floodlightcontroller.core.internal.OFSwitchManager.supportedOpenFlowVersions=1.3
net.floodlightcontroller.core.internal.OFSwitchManager.clearTablesOnInitialHandshakeAsMaster=YES
net.floodlightcontroller.core.internal.FloodlightProvider.role=ACTIVE
net.floodlightcontroller.restserver.RestApiServer.useHttp=YES
net.floodlightcontroller.restserver.RestApiServer.host=127.0.0.1
net.floodlightcontroller.restserver.RestApiServer.httpPort=8080
org.sdnplatform.sync.internal.SyncManager.persistenceEnabled=FALSE
`

// floodlightJar returns the jar that the environment names, or one in a directory: that of a built
// clone, or the jar itself; "": there is none.
func floodlightJar(own string) (string, error) {
	named := os.Getenv(floodlightEnv)
	if named == "" {
		for _, jar := range []string{own + "/target/floodlight.jar", own + "/floodlight.jar"} {
			if info, err := os.Stat(jar); err == nil && info.Mode().IsRegular() {
				return jar, nil
			}
		}
		return "", nil
	}
	if !filepath.IsAbs(named) { // the lab's daemon has another working directory
		return "", lack.New(fmt.Sprintf("%s=%q is not an absolute path", floodlightEnv, named), ":  ",
			"write /path/floodlight.jar")
	}
	info, err := os.Stat(named)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a file")
	}
	if err != nil {
		return "", lack.New(fmt.Sprintf("%s names no jar: %v", floodlightEnv, err), ":  ",
			"name Floodlight's target/floodlight.jar")
	}
	return named, nil
}

// jarVersion returns the version in a jar's manifest (JAR File Specification, "Main Attributes"):
// Floodlight's main program has no option that prints it.
func jarVersion(jar string) (string, error) {
	z, err := zip.OpenReader(jar)
	if err != nil {
		return "", fmt.Errorf("%s: %w", jar, err)
	}
	defer z.Close()
	f, err := z.Open("META-INF/MANIFEST.MF")
	if err != nil {
		return "", fmt.Errorf("%s: %w", jar, err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(io.LimitReader(f, 1<<20)); lines.Scan(); {
		if version, ok := strings.CutPrefix(lines.Text(), "Implementation-Version:"); ok {
			return "Floodlight " + strings.TrimSpace(version), nil
		}
	}
	return "", fmt.Errorf("%s: its manifest has no Implementation-Version", jar)
}
