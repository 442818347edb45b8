from .breakers import provider_of as provider_of
from .decisions import FALLBACK as FALLBACK
from .decisions import LASTING as LASTING
from .decisions import TIERS as TIERS
from .tiers import EngineProblems as EngineProblems
from .tiers import fallback_name as fallback_name
