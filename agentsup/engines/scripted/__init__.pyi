from .engine import read_script as read_script
from .engine import script_path as script_path
from .script import build_script as build_script
from .script import parse_script as parse_script
