import subprocess
subprocess.check_output(["id"])
