from .address import parse as parse
from .client import TelegramClient as TelegramClient
from .http import SharedHttp as SharedHttp
