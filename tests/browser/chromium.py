"""Find the Chromium for browser tests. `python -m tests.browser.chromium` prints its path, or how to get one."""

import os
import shutil
import sys
from pathlib import Path

VARIABLE = "WORKBENCH_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class NoBrowserError(RuntimeError):
    """No Chromium was found. The message says how to get one."""


def find_chromium() -> Path:
    """Return the browser that `WORKBENCH_CHROMIUM` names, or without this variable the first Chromium on the PATH."""
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise NoBrowserError(f"{VARIABLE}={named!r} is not a program that can be run")
        return Path(found)
    for name in NAMES:
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    raise NoBrowserError(
        f"no browser for the tests: none of {', '.join(NAMES)} is on the PATH. "
        f"Install Chromium (Debian: apt-get install chromium), or set {VARIABLE} to its path"
    )


if __name__ == "__main__":
    try:
        print(find_chromium())
    except NoBrowserError as error:
        sys.exit(str(error))
