from .address import parse as parse
from .client import TelegramClient as TelegramClient
from .deliver import TelegramChannel as TelegramChannel
from .http import SharedHttp as SharedHttp
