"""The one manager for the programs that engines run: places, private homes, limits, ends."""

from agentsup.engines.child.berths import BerthLimits, Berths
from agentsup.engines.child.child import Child, ChildLimits
from agentsup.engines.child.children import ChildManager
from agentsup.engines.child.homes import EngineHome, ProgramHome, home_variables, prepared
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
    "find_program",
    "home_variables",
    "prepared",
    "read_options",
]
