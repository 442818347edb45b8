from . import retention as retention
from .errors import TokenRefused as TokenRefused
from .report import ChannelReport as ChannelReport
from .report import ChannelState as ChannelState
