from .address import parse as parse
from .client import SharedHttp as SharedHttp
from .client import TelegramClient as TelegramClient
from .deliver import TelegramChannel as TelegramChannel
