"""Make the virtual environment that the book is built in.

Run by ``make`` with whatever Python there is, before anything is installed: only the standard
library, and syntax that an old Python can still read well enough to be told that it is too old.
What goes wrong is said in one line.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile

OLDEST, TOO_NEW = (3, 11), (3, 14)
NEEDED_BYTES = 2 * 10**9


def main(arguments: list[str]) -> int:
    """Create ``arguments[0]`` and install requirements.txt into it; return the exit status."""
    if not OLDEST <= sys.version_info[:2] < TOO_NEW:
        return fail(
            "needs Python 3.11, 3.12 or 3.13, but {} is {}.{}; name another one: "
            "make PYTHON=python3.12".format(sys.executable, *sys.version_info[:2])
        )
    if not all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
        return fail(
            "this Python has no venv module; on Debian: apt install python{}.{}-venv".format(
                *sys.version_info[:2]
            )
        )
    folder = arguments[0]
    free = shutil.disk_usage(os.path.dirname(os.path.abspath(folder))).free
    if not os.path.isdir(folder) and free < NEEDED_BYTES:
        return fail(
            "needs 2 GB of free disk for the packages, and there are {:.1f}".format(free / 1e9)
        )
    python = os.path.join(folder, "bin", "python")
    print(
        "installing the pinned packages into {} (1 to 3 minutes, once) ...".format(folder),
        flush=True,
    )
    steps: list[list[str]] = [
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        + ["-r", "requirements.txt"]
    ]
    if not os.path.exists(python):
        steps.insert(0, [sys.executable, "-m", "venv", folder])
    for step in steps:
        with tempfile.TemporaryFile("w+") as log:
            status = subprocess.call(step, stdout=log, stderr=subprocess.STDOUT)
            if status:
                log.seek(0)
                return fail(reason(log.read()))
    return 0


def reason(log: str) -> str:
    """Say what stopped the installation, in one line, from what the tools printed."""
    if "No space left on device" in log:
        return "the disk is full; free some space and run the command again"
    network = (
        "NewConnectionError",
        "Temporary failure in name resolution",
        "ProxyError",
        "ConnectTimeoutError",
        "Network is unreachable",
        "Failed to establish",
    )
    if any(word in log for word in network):
        return "the package index cannot be reached: is there a network? Then run the command again"
    missing = re.search(r"No matching distribution found for (\S+)", log)
    if missing:
        return "the package index cannot be reached, or has no {}: is there a network?".format(
            missing.group(1)
        )
    lines = [line for line in log.splitlines() if "error" in line.lower()] or log.splitlines()
    return "the installation failed: {}".format(lines[-1].strip() if lines else "no message")


def fail(message: str) -> int:
    """Print one line and return the exit status of a user's mistake."""
    print("companion: " + message, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
