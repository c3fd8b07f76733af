"""The package trivet against labs: what the commands can do is there, and says what they say. Needs root."""
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from trivet import CommandError, Lab, NoLab, TrivetError, labs, read_results  # noqa: E402

PREFIX = os.environ.get("TRIVET_LAB") or "py%d" % os.getpid()
os.environ.pop("TRIVET_LAB", None)


class TestLab(unittest.TestCase):
    """One lab for all: each test leaves it as it was."""

    @classmethod
    def setUpClass(cls):
        cls.lab = Lab("linear,3", name=PREFIX + "-a").up()
        cls.addClassCleanup(cls.lab.down)

    def test_command(self):
        """cmd gives what a command prints, run its outputs apart, and an exit code other than 0 is an error with its text."""
        h1 = self.lab["h1"]
        self.assertIn("10.0.0.1/8", h1.cmd("ip -br addr"))
        self.assertCountEqual(h1.cmd("echo out; echo err >&2; exit 3").split(), ["out", "err"])
        self.assertEqual(h1.run(["cat"], input="hello").stdout, "hello")
        with self.assertRaises(CommandError) as raised:
            h1.run("echo no >&2; exit 3")
        self.assertEqual(raised.exception.returncode, 3)
        self.assertIn("no", str(raised.exception))
        self.assertEqual(h1.run(["false"], check=False).returncode, 1)
        self.assertEqual(h1.run(["/no/such"], check=False).returncode, 127)

    def test_short_programs(self):
        """A program that has ended before its input is closed is none less for that: all outputs come."""
        h1 = self.lab["h1"]
        for i in range(30):
            self.assertEqual(h1.run(["echo", str(i)], input="nobody reads this\n" * 100).stdout, "%d\n" % i)

    def test_much_output(self):
        """A megabyte passes as it is, in both directions at once."""
        text = "".join("line %d\n" % i for i in range(100000))
        self.assertEqual(self.lab["h1"].run(["cat"], input=text).stdout, text)

    def test_process(self):
        """popen has streams, signals and a wait like subprocess."""
        p = self.lab["h1"].popen("trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.05; done",
                                 stdout=subprocess.PIPE, text=True)
        self.assertEqual(p.stdout.readline(), "ready\n")
        self.assertIsNone(p.poll())
        with self.assertRaises(subprocess.TimeoutExpired):
            p.wait(0.05)
        p.terminate()
        self.assertEqual(p.communicate()[0], "caught\n")
        self.assertEqual(p.wait(), 7)
        self.assertTrue(p.stdout.closed)
        p = self.lab["h1"].popen(["sleep", "100"])
        p.kill()
        self.assertEqual(p.wait(), 128 + 9)

    def test_timeout_ends_it(self):
        """What runs longer than its timeout does not go on."""
        for timeout in (1, 10, 60):  # on a busy machine it may not have begun by then
            with self.assertRaises(subprocess.TimeoutExpired):
                self.lab["h1"].run("echo $$ >/tmp/%s.pid; exec sleep 1000" % PREFIX, timeout=timeout)
            with open("/tmp/%s.pid" % PREFIX, "a+") as f:
                f.seek(0)
                pid = f.read()
            if pid:
                break
        os.unlink(f.name)
        for _ in range(200):
            try:
                os.kill(int(pid), 0)
            except ProcessLookupError:
                return
            time.sleep(0.1)
        self.fail("the program runs on")

    def test_threads(self):
        """Threads use one lab at a time."""
        said = {}

        def ask(name):
            said[name] = [self.lab[name].cmd("hostname").strip() for _ in range(5)]

        threads = [threading.Thread(target=ask, args=(n,)) for n in ("h1", "h2", "h3")]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(said, {n: [n] * 5 for n in ("h1", "h2", "h3")})

    def test_links(self):
        """A link is set, seen and pulled; what cannot be is said as by the command."""
        link = self.lab.link("s1", "s2")
        self.assertEqual(link.set(bandwidth="100mbit", delay="3ms").info["delay"], "3ms")
        self.assertGreaterEqual(self.lab["h1"].ping("h2").rtt_ms["min"], 6)
        self.assertNotIn("delay", link.set(bandwidth="none", delay="none").info)
        link.down()
        self.assertEqual(self.lab.ping("h1", "h2", timeout="200ms").received, 0)
        self.assertTrue(link.info["down"])
        link.up()
        self.assertEqual(self.lab.ping("h1", "h2").loss, 0)
        with self.assertRaisesRegex(TrivetError, "no link h1-h2"):
            self.lab.link("h1", "h2")
        with self.assertRaisesRegex(TrivetError, '"soon" is not a time span'):
            link.set(delay="soon")
        self.assertEqual(len(self.lab.links()), 5)
        with self.assertRaisesRegex(KeyError, "no node h9"):
            self.lab["h9"]

    def test_measures(self):
        """Pings, throughput, flows, the way and statistics are the API's."""
        pings = self.lab.ping_all()
        self.assertTrue(pings)
        self.assertEqual((pings.sent, pings.received), (6, 6))
        self.assertGreater(self.lab.iperf("h1", "h3", seconds=1).bits_per_second, 1e6)
        flows = self.lab.flows("s1")
        self.assertEqual({f["switch"] for f in flows}, {"s1"})
        self.assertIn("routes", self.lab.routes)
        self.assertIn("s2", json.dumps(self.lab.path("h1", "h3")))
        self.assertIn("ports", str(self.lab.statistics))
        self.assertEqual([len(x["directions"]) for x in self.lab.traffic()["links"]], [2] * 5)
        looks = self.lab.follow_traffic(every="100ms")
        self.assertNotIn("period", next(looks))
        look = next(looks)
        self.assertGreater(look["period"], 0)
        self.assertTrue(all("rate" in d for link in look["links"] for d in link["directions"]))
        looks.close()
        self.assertEqual([h.name for h in self.lab.hosts], ["h1", "h2", "h3"])
        self.assertEqual(self.lab["h2"].ip, "10.0.0.2")

    def test_events(self):
        """A link that goes down is an event."""
        events = self.lab.events()
        self.assertEqual(next(events)[0], "ready")
        self.lab.link("s2", "s3").down()
        seen = next(kind for kind, what in events if kind == "link")
        self.assertEqual(seen, "link")
        events.close()
        self.lab.link("s2", "s3").up()

    def test_attach(self):
        """Another program finds the lab by its name, and in the list."""
        self.assertEqual(Lab.attach(self.lab.name).info["state"], "up")
        self.assertIn(self.lab.name, [lab["name"] for lab in labs()])
        with self.assertRaisesRegex(NoLab, "there is no lab nowhere"):
            Lab.attach("nowhere")


class TestRemote(unittest.TestCase):
    """A lab whose API is on TCP is used as on its socket by who has the token, with nothing of the lab's machine but that."""

    @classmethod
    def setUpClass(cls):
        cls.own = Lab("linear,3", name=PREFIX + "-t").up()
        cls.addClassCleanup(lambda: cls.own._client is not None and cls.own.down())
        cls.remote = cls.api("on", "--tls", "--read-only")
        with open(cls.remote["token_file"]) as f:
            cls.token = f.read().strip()
        cls.lab = Lab.attach(url=cls.remote["url"], token=cls.token, certificate=cls.remote["certificate_file"])

    @classmethod
    def api(cls, *args):
        done = subprocess.run([os.environ["TRIVET"], "api", *args, "--json", "--lab", PREFIX + "-t"], stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    def test_use(self):
        """What is read, measured and changed, and programs in nodes, with much of input and output at once."""
        lab = self.lab
        self.assertEqual((lab.name, lab.info["state"], len(lab.hosts)), (self.own.name, "up", 3))
        self.assertTrue(lab.ping_all())
        lab.link("s1", "s2").down()
        self.assertFalse(lab.ping("h1", "h3", timeout="200ms"))
        self.assertEqual(self.own.link("s1", "s2").state["ends"], lab.link("s1", "s2").state["ends"])
        lab.link("s1", "s2").up()
        self.assertTrue(lab.flows("s1"))
        self.assertEqual(lab.api.get_lab()["name"], self.own.name)
        text = "".join("line %d\n" % i for i in range(100000))
        self.assertEqual(lab["h1"].run(["cat"], input=text).stdout, text)
        self.assertEqual(lab["h1"].run("exit 3", check=False).returncode, 3)
        p = lab["h2"].popen("trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.05; done", stdout=subprocess.PIPE, text=True)
        self.assertEqual(p.stdout.readline(), "ready\n")
        p.terminate()
        self.assertEqual((p.communicate()[0], p.returncode), ("caught\n", 7))

    def test_environment(self):
        """A program there has nothing of the environment and the directory here, but what it is given."""
        os.environ["ONLY_HERE"] = "yes"
        self.addCleanup(os.environ.pop, "ONLY_HERE")
        self.assertEqual(self.lab["h1"].cmd("echo $ONLY_HERE; pwd"), "\n/\n")
        self.assertEqual(self.lab["h1"].cmd("echo $ONLY_HERE; pwd").count("yes"), 0)
        given = self.lab["h1"].run(["/bin/sh", "-c", "echo $A"], env={"A": "b", "PATH": "/bin:/usr/bin"})
        self.assertEqual(given.stdout, "b\n")

    def test_events(self):
        """What happens comes as it does."""
        seen = self.lab.events()
        timer = threading.Timer(0.3, self.own.link("s2", "s3").set, kwargs={"delay": "1ms"})
        changed = threading.Timer(0.5, self.own.link("s2", "s3").down)
        for t in timer, changed:
            t.start()
            self.addCleanup(t.join)
        for kind, what in seen:
            if kind == "link":
                break
        seen.close()
        changed.join()
        self.own.link("s2", "s3").up()

    def test_refused(self):
        """Who has no token, or is led to another daemon, is told; and what takes the lab's machine."""
        url, certificate, print_ = self.remote["url"], self.remote["certificate_file"], self.remote["fingerprint"]
        with self.assertRaisesRegex(TrivetError, "missing or wrong"):
            Lab.attach(url=url, token="x" * 43, certificate=certificate)
        with self.assertRaisesRegex(NoLab, "certificate of"):
            Lab.attach(url=url, token=self.token)
        with self.assertRaisesRegex(NoLab, "another certificate"):
            Lab.attach(url=url, token=self.token, fingerprint="0" * 64)
        self.assertEqual(Lab.attach(url=url, token_file=self.remote["token_file"], fingerprint=print_.upper()).name, self.own.name)
        for wrong, why in [("http://192.0.2.1:80", "plain HTTP would show"), ("ftp://x:1", "is not where"), ("https://127.0.0.1", "is not where")]:
            with self.assertRaisesRegex(TrivetError, why):
                Lab.attach(url=wrong, token=self.token)
        reading = Lab.attach(url=url, token_file=self.remote["read_token_file"], certificate=certificate)
        self.assertEqual(len(reading.hosts), 3)
        with self.assertRaisesRegex(TrivetError, "GET and HEAD only"):
            reading.link("s1", "s2").down()
        with self.assertRaisesRegex(TrivetError, "GET and HEAD only"):
            reading["h1"].cmd("true")
        with self.assertRaisesRegex(TrivetError, "apply takes the program trivet"):
            self.lab.apply("x.yaml")

    def test_y_token(self):
        """A token that has been changed or taken away is refused."""
        with open(self.remote["read_token_file"]) as f:
            reading = f.read().strip()
        self.assertNotIn("read_token_file", self.api("token", "--read-only", "--remove"))
        self.api("token")
        for old in self.token, reading:
            with self.assertRaisesRegex(TrivetError, "missing or wrong"):
                Lab.attach(url=self.remote["url"], token=old, certificate=self.remote["certificate_file"])
        type(self).lab = Lab.attach(url=self.remote["url"], token_file=self.remote["token_file"], certificate=self.remote["certificate_file"])

    def test_z_down(self):
        """down takes the lab down, from there."""
        self.lab.down()
        self.assertNotIn(self.own.name, [lab["name"] for lab in labs()])
        self.own._client = None


class TestRoutes(unittest.TestCase):
    def test_route_events(self):
        """The routes that a routing node uses come first, then what changes of them, and what it redistributes into a program."""
        with tempfile.TemporaryDirectory() as d:
            file = os.path.join(d, "lab.yaml")
            with open(file, "w") as f:
                f.write("nodes:\n  r[1-2]: {router: {redistribute: static into bgp}}\n  h[1-2]: host\nlinks: [h1 -- r1, r1 -- r2, r2 -- h2]\n")
            with Lab(file, name=PREFIX + "-r") as lab:
                used = lab.routes["routes"]
                events = lab.events(routes=["r1"], into="bgp")
                seen = [next(what for kind, what in events if kind == "route") for r in used if r["router"] == "r1"]
                self.assertCountEqual([r["prefix"] for r in seen], [r["prefix"] for r in used if r["router"] == "r1"])
                lab.client.call("POST", "/v1/controller/routes", {"router": "r1", "prefix": "10.99.0.0/16", "via": [], "tag": 7})
                new = [next(what for kind, what in events if kind == "route") for _ in range(2)]
                self.assertCountEqual([(r["prefix"], r["tag"], r.get("into")) for r in new], [("10.99.0.0/16", 7, None), ("10.99.0.0/16", 7, "bgp")])
                events.close()


class TestFiles(unittest.TestCase):
    def test_file_and_apply(self):
        """A file comes up, an edited one is applied, and nothing is left when the block ends, whatever ends it."""
        with tempfile.TemporaryDirectory() as d:
            file = os.path.join(d, "lab.yaml")
            with open(file, "w") as f:
                f.write("nodes: {h1: host, h2: host}\nlinks: [h1 -- h2]\n")
            with self.assertRaises(ZeroDivisionError):
                with Lab.from_file(file, name=PREFIX + "-b") as lab:
                    with open(file, "w") as f:
                        f.write("nodes: {h1: host, h2: host, h3: host}\nlinks: [h1 -- h2: {delay: 1ms}, h2 -- h3]\n")
                    self.assertTrue(lab.apply(file, dry_run=True))
                    self.assertNotIn("h3", lab)
                    lab.apply(file)
                    self.assertIn("h3", lab)
                    raise ZeroDivisionError
            self.assertFalse(os.path.exists("/run/trivet/%s-b" % PREFIX))
            with open(file, "w") as f:
                f.write("nodes: {h1: hots}\n")
            with self.assertRaisesRegex(TrivetError, r"lab\.yaml:1:\d+ .*hots"):
                Lab.from_file(file, name=PREFIX + "-b").up()

    def test_results(self):
        """A file of trivet bench is rows; what does not count is left out."""
        records = [
            {"record": "header", "schema": 1, "experiment": {"name": "x"}},
            {"record": "sample", "run": 1, "probe": "p", "warm_up": True, "measurements": [{"metric": "rtt", "unit": "s", "values": [9]}]},
            {"record": "sample", "run": 2, "probe": "p", "factors": {"k": 1}, "measurements": [{"metric": "rtt", "unit": "s", "values": [8]}]},
            {"record": "sample", "run": 2, "probe": "p", "factors": {"k": 1}, "verdict": {"level": "good"}, "measurements": [
                {"metric": "rtt", "unit": "s", "values": [0.1, 0.2], "at": [0, 1]}, {"metric": "loss", "unit": "1", "count": 1, "of": 4}]},
        ]
        with tempfile.TemporaryDirectory() as d:
            with open(os.path.join(d, "x.jsonl"), "w") as f:
                f.write("\n".join(map(json.dumps, records)) + "\n" + '{"record": "sample", "ru')
            r = read_results(d)
            self.assertEqual([(row["k"], row["metric"], row["value"]) for row in r.rows()],
                             [(1, "rtt", 0.1), (1, "rtt", 0.2), (1, "loss", 0.25)])
            try:
                import pandas  # noqa: F401
            except ImportError:
                with self.assertRaisesRegex(TrivetError, "pandas is not installed"):
                    r.to_pandas()
            else:
                self.assertEqual(list(r.to_pandas()["value"]), [0.1, 0.2, 0.25])
            with self.assertRaisesRegex(TrivetError, "no file of results"):
                read_results(os.path.dirname(os.path.abspath(__file__)))


if __name__ == "__main__":
    unittest.main()
