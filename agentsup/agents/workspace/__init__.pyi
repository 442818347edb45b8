from .engine_setup import EngineSetup as EngineSetup
from .processes import ProcessTable as ProcessTable
from .shared_memory import SharedKnowledge as SharedKnowledge
