from .endpoint import TurnEndpoint as TurnEndpoint
from .engine_host import HostServices as HostServices
from .services import TurnServices as TurnServices
