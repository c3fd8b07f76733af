"""flaky.py EVENTS DIRECTORY: names the tests that failed and then passed, by what `go test -json` said.

What each said when it failed is written to a file in DIRECTORY. Exits with 1 where one of them said something that must
not happen even once.
"""

import json
import os
import re
import sys
import time

NEVER = re.compile(r"WARNING: DATA RACE|the machine is not as it was|lost for good")


def main(events, directory):
    output, failed, passed = {}, {}, set()
    with open(events, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            test, action = (event.get("Package"), event.get("Test")), event.get("Action")
            if test[1] is None:
                continue
            if action == "run":
                output[test] = []
            elif action == "output":
                output.setdefault(test, []).append(event["Output"])
            elif action == "fail":
                failed.setdefault(test, []).append("".join(output.get(test, [])))
            elif action == "pass" and test in failed:
                passed.add(test)
    # A test is known by what failed within it.
    flaky = sorted(t for t in passed if not any(o[0] == t[0] and o[1].startswith(t[1] + "/") for o in passed))
    wrong = False
    for package, name in flaky:
        said = failed[package, name]
        os.makedirs(directory, exist_ok=True)
        file = os.path.join(directory, re.sub(r"[^\w.-]+", "-", package.rsplit("/", 1)[-1] + "-" + name) + time.strftime("-%Y%m%d-%H%M%S.txt"))
        with open(file, "w", encoding="utf-8") as out:
            out.write("\n".join(said))
        if NEVER.search("".join(said)):
            wrong = True
            print(f"FAIL   {package} {name}: what it said must not happen even once: {file}")
        else:
            print(f"FLAKY  {package} {name}: failed {len(said)} of {len(said) + 1} times; what it said: {file}")
    if flaky:
        print(f"FLAKY  the machine's load is {os.getloadavg()[0]:.1f} now, with {os.cpu_count()} processors")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
