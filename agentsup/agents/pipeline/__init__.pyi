from . import results as results
from .pipeline import Hooks as Hooks
from .pipeline import Pipeline as Pipeline
from .results import ResultStore as ResultStore
from .stages import default_hooks as default_hooks
