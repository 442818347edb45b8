from . import grants as grants
from .gate import ApprovalGate as ApprovalGate
from .gate import GateSettings as GateSettings
from .grants import Grant as Grant
from .grants import Grants as Grants
from .recorder import DecisionRecorder as DecisionRecorder
