from .endpoint import ServedTurn as ServedTurn
from .engine_host import HostServices as HostServices
from .services import TurnServices as TurnServices
