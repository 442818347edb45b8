from . import retention as retention
from .address import parse as parse
from .deliver import MatrixChannel as MatrixChannel
