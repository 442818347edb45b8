"""The store: one SQLite file, one writer with group commit, readers beside it.

`Database` is the door; see `agentsup.store.database`.
"""

from agentsup.store.database import Database, Reader, StoreOptions, Tx
from agentsup.store.failures import Trouble
from agentsup.store.probe import StoreHealth, probe
from agentsup.store.retention import Pruned, Retention, add_to_totals, prune
from agentsup.store.runner import InlineRunner, Runner, RunnerDead, ThreadRunner
from agentsup.store.stats import SlowFunction, StoreStats

__all__ = [
    "Database",
    "InlineRunner",
    "Pruned",
    "Reader",
    "Retention",
    "Runner",
    "RunnerDead",
    "SlowFunction",
    "StoreHealth",
    "StoreOptions",
    "StoreStats",
    "ThreadRunner",
    "Trouble",
    "Tx",
    "add_to_totals",
    "probe",
    "prune",
]
