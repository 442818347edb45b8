from .presets import PROGRAMS as PROGRAMS
from .presets import Preset as Preset
from .presets import sign_in_of as sign_in_of
