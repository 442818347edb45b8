from . import limits as limits
from . import texts as texts
from .cost_report import CostReport as CostReport
from .spending import BudgetReservations as BudgetReservations
from .texts import money as money
