"""``python -m lowering copy ...`` is ``ptxsim lower copy ...``."""

from __future__ import annotations

import sys

from ptxsim.cli import main

sys.exit(main(["lower", *sys.argv[1:]]))
