"""``send_file``: a file of the workspace to the chat to which the agent answers, at once.

The part of the outbox is written with the id of the call, so a call that is repeated after a kill
sends nothing twice, and the file is delivered even if the turn fails later.
"""

from __future__ import annotations

import stat
from functools import partial
from pathlib import PurePosixPath

from pydantic import Field

from agentsup.agents.tools.declaring import Arguments, Text, tool, tool_of
from agentsup.kit.clock import Clock
from agentsup.kit.pool import BoundedPool
from agentsup.kit.safe_files import GuardedFolder, PathEscapes, names_of
from agentsup.mailbox import Mailbox
from agentsup.mailbox.delivery import sent_files
from agentsup.mailbox.queue import waits
from agentsup.model.errors import BadRequest, Conflict, NotFound, TooLarge
from agentsup.model.tool import Effect, Safety, Tool, ToolContext
from agentsup.store import Database, Tx

MAX_BYTES = 50 * 1024 * 1024
"""No platform takes more from a bot."""
_CAPTION_CHARS = 1000
_SENT = "{name} is on its way to the chat."


class SendFile(Arguments):
    """The arguments of ``send_file``."""

    path: Text = Field(description="Path relative to the workspace.")
    caption: Text = Field("", description="A short text below it.")


def sending_tool(database: Database, mailbox: Mailbox, clock: Clock, pool: BoundedPool) -> Tool:
    """The tool. Files are looked up in ``pool``."""

    @tool("send_file", Effect.KEYED, Safety.MODERATE)
    async def send(context: ToolContext, args: SendFile) -> str:
        """Send a file of your workspace to the person in this chat, such as a picture, a document
        or a table; pictures are shown as pictures. Your answer follows as usual."""
        _check_chat(context)
        if len(args.caption) > _CAPTION_CHARS:
            raise BadRequest(f"the caption may have {_CAPTION_CHARS} characters", field="caption")
        look_up = partial(_path_to_send, context.workspace, args.path)
        path = await pool.run(look_up, key=context.agent_name)
        name = PurePosixPath(path).name
        step = partial(_send_tx, mailbox, context, path, args.caption, clock)
        await database.write(step, name="tools.send_file")
        return _SENT.format(name=name)

    return tool_of(send)


def _check_chat(context: ToolContext) -> None:
    """Raise ``Conflict`` if there is no chat that this agent's files can be sent to."""
    to = context.lease.message.deliver_to
    if to.kind != "chat" or to.silent:
        raise Conflict(
            "nobody reads along here: the answer goes to another agent or to a program. Name the "
            "path of the file in your answer instead"
        )
    is_own = (to.agent_id or context.agent_id) == context.agent_id == context.self_id
    if not is_own or not context.workspace:
        raise Conflict(
            "this chat is another agent's, which has no access to your files. Write the content "
            "into your answer instead"
        )


def _path_to_send(workspace: str, path: str) -> str:
    """The path below the workspace if there is a plain file of a fitting size. Blocks."""
    root = workspace.rstrip("/") + "/"
    try:
        names = names_of(path.removeprefix(root))
        known = GuardedFolder(workspace).stat("/".join(names))
    except PathEscapes:
        raise BadRequest(f"{path[:200]} is not in your workspace", field="path") from None
    except FileNotFoundError:
        raise NotFound(f"there is no file {path[:200]}") from None
    except OSError as error:
        raise Conflict(f"{path[:200]} can't be sent: {error.strerror or error}") from None
    if not stat.S_ISREG(known.st_mode):
        raise BadRequest(f"{path[:200]} is not a plain file", field="path")
    if not known.st_size:
        raise BadRequest(f"{path[:200]} is empty", field="path")
    if known.st_size > MAX_BYTES:
        raise TooLarge(f"{path[:200]} has more than {MAX_BYTES // 1_048_576} MB")
    return "/".join(names)


def _send_tx(
    mailbox: Mailbox, context: ToolContext, path: str, text: str, clock: Clock, tx: Tx
) -> None:
    message, call_id = context.lease.message, str(context.call_id)
    if sent_files.is_sent(tx, message.message_id, call_id):
        return
    waits.need_lease(mailbox.context, tx, context.lease)  # a turn that was stopped sends nothing
    if sent_files.count(tx, message.message_id) >= sent_files.MOST_FILES:
        raise Conflict(f"a turn sends at most {sent_files.MOST_FILES} files; put them into one")
    sent_files.send_tx(
        tx,
        message,
        call_id=call_id,
        path=path,
        name=PurePosixPath(path).name,
        text=text,
        at=clock.now_ms(),
    )
