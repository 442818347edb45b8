from . import rules as rules
from .guard import GuardedSession as GuardedSession
from .guard import open_guarded as open_guarded
from .rules import SegmentLimits as SegmentLimits
