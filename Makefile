# `make help` lists the targets. Everything that is built is built as the user; root (by sudo) is asked for
# where packages are installed and labs run.

GO := scripts/go
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
BUILD := $(GO) build -ldflags "-s -w -X trivet.dev/trivet/internal/version.Version=$(VERSION)"
AS_ROOT := -exec "'$(CURDIR)/scripts/as-root'"
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# The same for building and testing, so that both compile the libraries once.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false

# Duration of each fuzz target (make fuzz), repetitions of each comparison (make bench). BUDGET is the time for make papers: 90m.
# TIME is the time for make chaos, SEED what it repeats, LABS which of its labs it has (a regular expression).
FUZZTIME := 10s
PAIRS := 5
TIME := 10m

# What make test runs: the fast ring. The other is test/slow.ini.
FAST := unit core vm paper arm64 lint

# The quickest experiment of each paper.
QUICKEST := $(addprefix experiments/,1-c3-edge/figure-4.yaml 2-routing-emulation/figures-11-12.yaml \
	3-mininet-performance/isolation.yaml 4-campus-openwrt/tables-1-3.yaml 5-openwrt-raspberry-pi/figure-9.yaml)

# The document that make matrix writes its table into.
TABLE := docs/performance.md

# Where make install puts what is built.
PREFIX := /usr/local

.DEFAULT_GOAL := build
.PHONY: build demo bootstrap test unit e2e core vm paper arm64 slow test-vm test-arm64 test-openstack test-all race race-lab chaos cluster-faults interop clients matrix faults fuzz bench papers papers-quick recompute lint install dist wheel notebook generate clean help

build: ## bin/trivet, a static binary (the default)
	@started=$$(date +%s); [ ! -t 1 ] || printf 'trivet  building\r'; \
	said=$$($(BUILD) -o bin/trivet ./cmd/trivet 2>&1) || { echo "$$said" >&2; exit 1; }; \
	echo "trivet  built in $$(($$(date +%s) - started)) s"

demo: ## install what is missing, build, bring up a campus of 50 nodes, measure, take it down
	@scripts/bootstrap --run
	@$(MAKE) --no-print-directory build
	@scripts/demo

bootstrap: ## install what building, running and testing need
	@scripts/bootstrap --test

test: bootstrap ## all that a change can break at once: unit tests, the core of the tests from outside, a full kernel, a rack, the papers, lint
	@scripts/section $(FAST:%="$(MAKE) --no-print-directory %")

unit: # the packages' own tests
	@scripts/tests "$$($(GO) list ./... | grep -vE '/test/(e2e|bench|hostile)$$' | tr '\n' ' ')" $(AS_ROOT) -p 3 -timeout 20m # many of them wait

# The program from outside: all of its tests, or, from the environment (a $ stays as it is there), those that match TESTS and not SKIP.
e2e: build
	@scripts/tests ./test/e2e $(AS_ROOT) -count 1 -timeout 40m -run "$${TESTS:-.}" $${SKIP:+-skip "$$SKIP"}

core: # those that are not in the slow ring
	@SKIP=$$(scripts/slow pattern) $(MAKE) --no-print-directory e2e

vm: build # a full kernel, and a rack of machines with kernels of their own
	@scripts/vm uml ./test/e2e 'TestFullKernel|TestTerminalStuffed' --uptime=11 --mem=2048
	@TRIVET_RACK=uml TESTS='TestRack$$' $(MAKE) --no-print-directory e2e

paper: build # an experiment of each paper, quickly; the packages' tests have dry runs of all
	@scripts/papers --quick $(QUICKEST)

arm64: # everything compiles for the devices of a rack
	@GOARCH=arm64 $(GO) build ./...
	@GOARCH=arm $(GO) build -o /dev/null ./cmd/trivet

slow: bootstrap ## the parts of the slow ring that changed files concern (test/slow.ini), or PARTS; what passed is written to test/proven
	@scripts/slow run $(PARTS)

test-vm: bootstrap ## those parts of the slow ring that run in virtual machines
	@scripts/slow run $$(scripts/slow names | tr ' ' '\n' | grep -E '^(vm|rack)-')

test-arm64: ## a device of another architecture in a rack: an emulated arm64 machine (15 minutes; in no other target)
	@scripts/bootstrap --arm64
	@$(MAKE) --no-print-directory dist
	@for package in ./openflow ./datapath/embedded/bpf ./target/local/guard; do scripts/vm arm64 $$package . || exit 1; done
	@TRIVET_RACK=uml TRIVET_ARM64=1 TESTS='TestRackArm64$$' $(MAKE) --no-print-directory e2e

test-openstack: bootstrap build ## labs in a real OpenStack, which is installed and started for it (packages that nothing else needs; 10 minutes)
	@scripts/as-root test/openstack/stack install
	@scripts/as-root test/openstack/selftest
	@scripts/as-root test/openstack/with sh -c 'scripts/tests ./site/openstack -count 1 -timeout 40m && TESTS="TestOpenStack.*" $(MAKE) --no-print-directory e2e'
	@scripts/as-root test/openstack/with --linux-bridges env TESTS='TestOpenStackRouters/here|TestOpenStackPortsExperiment' $(MAKE) --no-print-directory e2e

test-all: test ## both rings, and the whole matrix
	@scripts/slow run $$(scripts/slow names) && $(MAKE) --no-print-directory matrix TABLE=$$(mktemp) # not into the clone

race: bootstrap ## the tests of packages that share state, and a lab that changes while it is asked, with the race detector (needs a C compiler)
	@scripts/slow run race race-lab

race-lab:
	@race=$$(mktemp -d) && trap "rm -r $$race" EXIT && CGO_ENABLED=1 $(GO) build -race -o $$race/trivet ./cmd/trivet && \
	TRIVET_BINARY=$$race/trivet TRIVET_RACE_BINARY=$$race/trivet $(GO) test $(AS_ROOT) -count 1 -timeout 10m -run 'TestRaces$$' ./test/e2e

chaos: build ## kill, fill and change at random for TIME (10m), and look whether anything is left; SEED repeats a run, LABS='guests|plugged' has only those
	@TRIVET_CHAOS=$(TIME) TRIVET_SEED=$(SEED) TRIVET_CHAOS_LABS='$(LABS)' $(GO) test $(AS_ROOT) -count 1 -timeout 24h -v -run 'TestChaos$$' ./test/e2e

interop: bootstrap ## OSPF of routing nodes, FRR and BIRD in 33 networks, all tables compared (15 minutes)
	@$(MAKE) --no-print-directory build
	@TRIVET_INTEROP=1 $(GO) test $(AS_ROOT) -count 1 -timeout 60m -v -run 'TestInterop$$' ./test/e2e

cluster-faults: ## members of a cluster, and their etcd, that fail at random for TIME (10m); what switches are told is checked to be linearizable; SEED begins another run
	@TRIVET_CLUSTER_FAULTS=$(TIME) TRIVET_SEED=$(SEED) $(GO) test -count 1 -timeout 24h -v -run 'TestLinearizable$$' ./cluster

clients: bootstrap ## os-ken's apps and Faucet on embedded switches as on those of Open vSwitch: docs/controller.md
	@$(MAKE) --no-print-directory build
	@scripts/peers
	@TRIVET_CLIENTS=1 $(GO) test $(AS_ROOT) -count 1 -timeout 60m -v -run 'TestClients$$' ./test/e2e

matrix: bootstrap ## is a lab what its file says? Each impairment, link, datapath, sender and way to set it: into TABLE (docs/performance.md; hours)
	@$(MAKE) --no-print-directory build
	@TRIVET_MATRIX="$(abspath $(TABLE))" $(GO) test $(AS_ROOT) -count 1 -parallel 3 -timeout 180m -v -run 'TestMatrix$$' ./test/e2e

faults: bootstrap ## does verify find what is broken? Each fault that is planted behind labs' backs, and labs that are healthy: into results/faults.md (an hour); FAULT='bridge/mtu' for some
	@$(MAKE) --no-print-directory build
	@mkdir -p results && rm -f results/faults.md
	@TRIVET_FAULTS="$(abspath results/faults.md)" $(GO) test $(AS_ROOT) -count 1 -timeout 120m -v -run 'Test(Faults$(if $(FAULT),,|Healthy|VerifyReach|VerifyRouters))$$$(if $(FAULT),/$(FAULT))' ./test/e2e >results/faults.log; \
	status=$$?; cat results/faults.md; grep -E '^ *--- (FAIL|SKIP)' results/faults.log; exit $$status

fuzz: ## each fuzz target for FUZZTIME (10s)
	@scripts/fuzz $(FUZZTIME)

bench: bootstrap ## measure Trivet, beside Mininet where both can do it: docs/performance.md, experiments/own (2 hours)
	@$(MAKE) --no-print-directory build
	@$(GO) test $(AS_ROOT) -count 1 -timeout 180m -v ./test/bench -pairs $(PAIRS)
	@RESULTS=results/bench scripts/papers experiments/own

papers: bootstrap ## every table and figure of the papers again, and one report: results/ (10 h with all that can be installed, or BUDGET=90m); TARGET=rack: papers 1, 4 and 5 on a rack of virtual machines
	@$(MAKE) --no-print-directory build
	@$(if $(filter-out local rack,$(TARGET)),echo "TARGET is local or rack, not $(TARGET)" >&2; exit 2;) scripts/papers$(if $(filter rack,$(TARGET)),-on-rack) $(if $(BUDGET),--budget $(BUDGET))

papers-quick: bootstrap ## all experiments in 21 min: few levels, one repetition
	@$(MAKE) --no-print-directory build
	@scripts/papers --quick experiments

recompute: build ## an independent program (numpy, scipy) computes again what reports of RESULTS (those of make papers) say, and compares
	@scripts/recompute $(RESULTS)

lint: ## gofmt, go vet, staticcheck; shellcheck for scripts
	@scripts/lint $(STATICCHECK)

install: ## trivet into PREFIX (/usr/local), with man pages and completions for bash, zsh and fish; DESTDIR goes before it (after make)
	@[ -x bin/trivet ] || { echo "build it first:  make" >&2; exit 1; }
	@install -D -m 755 bin/trivet $(DESTDIR)$(PREFIX)/bin/trivet
	@cd python && find trivet mininet -name '*.py' -o -name py.typed | while read -r f; do \
		install -D -m 644 "$$f" "$(DESTDIR)$(PREFIX)/share/trivet/python/$$f"; done
	@pages=$$(mktemp -d) && trap "rm -r $$pages" EXIT && scripts/pages bin/trivet $$pages && \
	install -D -m 644 $$pages/trivet.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/trivet && \
	install -D -m 644 $$pages/_trivet $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_trivet && \
	install -D -m 644 $$pages/trivet.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/trivet.fish && \
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $$pages/man/*.1
	@echo "$(DESTDIR)$(PREFIX)/bin/trivet"

dist: build ## binaries and Debian packages for amd64, arm64 and arm, with checksums, in dist/
	@rm -rf dist
	@scripts/pages bin/trivet dist/pages
	@for arch in amd64 arm64 arm; do \
		name=dist/trivet-$(VERSION)-linux-$$arch; \
		echo "$$name"; \
		GOARCH=$$arch GOARM=6 $(BUILD) -o $$name ./cmd/trivet || exit 1; \
		! command -v dpkg-deb >/dev/null || scripts/deb $$name dist/pages $$(echo $$arch | sed 's/^arm$$/armhf/') $(VERSION) $$name.deb || exit 1; \
	done
	@rm -r dist/pages
	@cd dist && sha256sum trivet-* >SHA256SUMS && \
	for arch in amd64 arm64 arm; do ln -s trivet-$(VERSION)-linux-$$arch trivet-linux-$$arch; done # what up --on looks for

wheel: build ## the Python packages trivet and mininet with the program, for pip, in dist/
	@scripts/wheel bin/trivet $(VERSION) dist

notebook: wheel ## install that wheel into a virtual environment, and run the notebooks of examples/ there
	@scripts/notebook "$$(ls -t dist/trivet-*.whl | head -1)" examples/*.ipynb

generate: ## generated code anew, and the pages of the commands
	@scripts/bootstrap --generate
	@$(GO) generate ./...
	@$(MAKE) --no-print-directory build
	@rm -rf docs/commands && bin/trivet docs markdown docs/commands

clean: ## remove what was built
	@rm -rf bin dist

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
