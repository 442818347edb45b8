from .services import HostServices as HostServices
from .services import TurnEndpoint as TurnEndpoint
from .services import TurnServices as TurnServices
