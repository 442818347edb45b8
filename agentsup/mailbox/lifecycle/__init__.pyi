from . import answering as answering
from . import closing as closing
from . import ending as ending
from .answering import answer_tx as answer_tx
from .answering import meant_by as meant_by
from .ending import leased_tx as leased_tx
