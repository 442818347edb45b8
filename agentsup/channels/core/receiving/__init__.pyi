from . import quarantine as quarantine
from . import strangers as strangers
from .inbox import HISTORY as HISTORY
from .inbox import Inbox as Inbox
from .inbox import InboxReply as InboxReply
from .quarantine import QuarantinedUpdate as QuarantinedUpdate
from .stop_marks import mark_tx as mark_tx
from .stop_scope import scope_of as scope_of
