from .mailbox import Mailbox as Mailbox
