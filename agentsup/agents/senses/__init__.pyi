from .kinds import NOTHING as NOTHING
from .kinds import Seen as Seen
from .service import Senses as Senses
from .voice import Hearing as Hearing
