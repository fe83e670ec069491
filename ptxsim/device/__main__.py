"""The process of an isolated launch: ``python -m ptxsim.device FOLDER``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .bindings import load
from .execute import execute
from .request import read_request, write_result


def main(folder: Path) -> None:
    """Read the request in a folder, carry it out, and write the result there."""
    result = execute(load(), read_request(folder))
    write_result(result, folder)
    if result.hung:
        # an orderly end would wait for the kernel
        os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
