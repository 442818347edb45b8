from .engines import DaemonEngines as DaemonEngines
from .engines import fencing_by as fencing_by
from .scripts import ScriptCheck as ScriptCheck
