from .mail import mailbox_tools as mailbox_tools
