from .local import LocalChannel as LocalChannel
