from .catalogue import PROVIDERS as PROVIDERS
from .catalogue import Provider as Provider
from .client import ModelAnswer as ModelAnswer
from .client import ProviderClient as ProviderClient
from .client import has_model as has_model
from .client import near_names as near_names
from .client import unknown_model as unknown_model
