from .delegate import delegation_tools as delegation_tools
from .delegate import spawning_tools as spawning_tools
from .reminders import reminder_tools as reminder_tools
from .tasks import task_tools as task_tools
from .teams import team_tools as team_tools
