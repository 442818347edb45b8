"""The process: its assembly, reconcile, stop and health; the only place that knows concrete classes.

Offers: ``run_daemon``.
Entry: ``main.run_daemon``; ``runtime.supervisor.AgentSupervisor`` for the order of start and stop.
Owns: boots, endings and facts.
Never: knows the command line.
"""

from __future__ import annotations

from importlib import import_module

import lazy_loader

import_module("agentsup.daemon.late_imports")
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
