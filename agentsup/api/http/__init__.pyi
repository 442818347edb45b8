from .dependencies import MIB as MIB
from .dependencies import ApiDependencies as ApiDependencies
from .dependencies import ApiLimits as ApiLimits
from .dependencies import WebDependencies as WebDependencies
