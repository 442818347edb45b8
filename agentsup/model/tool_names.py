"""The names of all tools there are, for whoever reads them without the tools themselves."""

from __future__ import annotations

OURS = frozenset(
    [
        "agent_spawn",
        "agent_steer",
        "agent_stop",
        "agent_wait",
        "ask_agent",
        "ask_agent_async",
        "ask_parent",
        "ask_person",
        "broadcast_to_agents",
        "delegate_task",
        "dispatch_team",
        "exec",
        "fs_delete",
        "fs_edit",
        "fs_list",
        "fs_mkdir",
        "fs_read",
        "fs_stat",
        "fs_write",
        "list_agents",
        "list_team",
        "mailbox_broadcast",
        "mailbox_read",
        "mailbox_reply",
        "mailbox_send",
        "memory_forget",
        "memory_recall",
        "memory_save",
        "mixture_of_agents",
        "read_shared_memory",
        "restart",
        "result_read",
        "route_to_agent",
        "task_answer",
        "task_cancel",
        "task_create",
        "task_list",
        "task_logs",
        "task_result",
        "task_status",
        "task_update",
        "think",
        "web_fetch",
    ]
)
"""What agentsup offers, and `think`, which stands for a program's own lists of what it wants to do."""

READ = "read glob grep ls list listdir notebookread read_file read_many_files list_directory"
SEARCH = "search search_file_content codesearch"
THINK = "think todowrite todoread todo_write update_plan plan exitplanmode switch_mode"
EDIT = "edit multiedit notebookedit apply_patch patch replace str_replace"
WRITE = "write write_file create_file"
RUN = "bash execute exec shell run_shell_command exec_command local_shell powershell"
FETCH = "webfetch websearch fetch web_fetch google_web_search web_search"
REMOVE = "delete move"

OF_PROGRAMS = frozenset(f"{READ} {SEARCH} {THINK} {EDIT} {WRITE} {RUN} {FETCH} {REMOVE}".split())
"""What coding agents call their own tools, without case, as far as it is known."""
