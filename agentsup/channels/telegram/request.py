"""The form of a call, as python-telegram-bot makes it. Imported only by ``client.library``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp
from telegram._files.inputfile import InputFile
from telegram.request._requestdata import RequestData
from telegram.request._requestparameter import RequestParameter


def input_file(handle: Any, name: str) -> InputFile:
    """An open file as a field of a call."""
    return InputFile(handle, filename=name, read_file_handle=False)


def form_of(fields: Mapping[str, Any]) -> Any:
    """Return the body of a call with ``fields``, without those that are None."""
    data = RequestData(
        [RequestParameter.from_input(*each) for each in fields.items() if each[1] is not None]
    )
    if not data.contains_files:
        return data.json_parameters
    form = aiohttp.FormData(default_to_multipart=True)
    for name, value in data.json_parameters.items():
        form.add_field(name, value)
    for name, (filename, content, kind) in data.multipart_data.items():
        form.add_field(name, content, filename=filename, content_type=kind)
    return form
