from .main import run_daemon as run_daemon
