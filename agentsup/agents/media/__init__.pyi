from .service import NOTHING as NOTHING
from .service import MediaReader as MediaReader
from .service import Seen as Seen
from .voice import Hearing as Hearing
