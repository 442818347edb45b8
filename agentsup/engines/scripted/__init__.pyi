from .engine import load_script as load_script
from .engine import script_path as script_path
from .script import build_script as build_script
