from . import reports as reports
