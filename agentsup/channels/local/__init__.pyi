from .channel import LocalChannel as LocalChannel
