from .catalog import RoleCatalog as RoleCatalog
from .limits import Roles as Roles
from .limits import usable as usable
from .registry import LiveRoleRegistry as LiveRoleRegistry
from .registry import read_roles as read_roles
from .registry import watch_roles as watch_roles
from .role import NONE as NONE
from .routing import Score as Score
