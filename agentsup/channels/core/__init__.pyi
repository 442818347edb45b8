from . import retention as retention
from .errors import NotSent as NotSent
from .errors import RequestRefused as RequestRefused
from .errors import TokenRefused as TokenRefused
from .report import ChannelReport as ChannelReport
from .report import ChannelState as ChannelState
