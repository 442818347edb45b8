from .listener import ApiServer as ApiServer
