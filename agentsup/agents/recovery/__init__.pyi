from .breaker import provider_of as provider_of
from .decisions import FALLBACK as FALLBACK
from .decisions import TIERS as TIERS
from .engine_problems import EngineProblems as EngineProblems
from .failure_kinds import LASTING as LASTING
from .tiers import fallback_name as fallback_name
