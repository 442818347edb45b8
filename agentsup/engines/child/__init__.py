"""The one manager for the programs that engines run: places, private homes, limits, ends."""

from agentsup.engines.child.berths import BerthLimits, Berths
from agentsup.engines.child.child import Child, ChildLimits
from agentsup.engines.child.children import ChildManager
from agentsup.engines.child.homes import EngineHome, ProgramHome, exec_home, home_variables
from agentsup.engines.child.options import ChildOptions, read_options
from agentsup.engines.child.surroundings import contained, find_program

__all__ = [
    "BerthLimits",
    "Berths",
    "Child",
    "ChildLimits",
    "ChildManager",
    "ChildOptions",
    "EngineHome",
    "ProgramHome",
    "contained",
    "exec_home",
    "find_program",
    "home_variables",
    "read_options",
]
