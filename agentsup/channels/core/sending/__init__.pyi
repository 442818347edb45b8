from .buttons import ONLY_WITH as ONLY_WITH
from .buttons import ChatNotices as ChatNotices
from .buttons import mint_tx as mint_tx
from .cards import clock_time as clock_time
from .cards import option_of_text as option_of_text
from .cards import outcome_text as outcome_text
from .deliver import DeliverySettings as DeliverySettings
from .http import HttpPool as HttpPool
