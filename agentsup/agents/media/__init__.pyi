from .kinds import NOTHING as NOTHING
from .kinds import Seen as Seen
from .service import MediaReader as MediaReader
from .voice import Hearing as Hearing
