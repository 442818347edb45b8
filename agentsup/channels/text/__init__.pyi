from .markdown import parse as parse
