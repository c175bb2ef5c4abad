"""The target of ``toolsemble work`` in a case; the folder is in the environment."""

import atexit
import os
from contextlib import ExitStack
from pathlib import Path

from seams.shop import open_shop
from seams.world import World

_stack = ExitStack()
atexit.register(_stack.close)
opened = _stack.enter_context(open_shop(World(Path(os.environ["SEAMS_FOLDER"]))))
agent = opened.agent
desk = opened.deps
