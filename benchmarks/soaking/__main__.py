"""The supervisor of rounds, a program of its own: ``python -m soaking CONTROL``.

A main module of this name is not imported again by spawned ranks.
"""

import sys

from soaking.driver import drive

drive(int(sys.argv[1]))
