from .routes import Router as Router
from .service import DelegationService as DelegationService
from .service import DelegationServices as DelegationServices
