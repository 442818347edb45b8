from . import failures as failures
from .failures import EmptyAfterToolUse as EmptyAfterToolUse
from .failures import EngineCrash as EngineCrash
from .failures import NotConfigured as NotConfigured
from .failures import NotInstalled as NotInstalled
from .failures import TurnLimitReached as TurnLimitReached
from .prices import Price as Price
from .prices import Prices as Prices
