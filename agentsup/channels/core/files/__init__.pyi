from .inbox_files import FOLDER as FOLDER
from .inbox_files import InboxFolder as InboxFolder
from .inbox_files import remove_received as remove_received
from .inbox_files import sweep_inbox as sweep_inbox
from .upload import UploadFile as UploadFile
from .upload import inside as inside
from .upload import open_upload as open_upload
