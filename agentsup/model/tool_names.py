"""The names of all tools, for code that must not import the tools themselves."""

from __future__ import annotations

ASKING = "ask_agent ask_agent_async ask_parent ask_person task_answer list_agents list_team"
DELEGATION = "delegate_task mixture_of_agents route_to_agent dispatch_team broadcast_to_agents"
RUNS = "agent_spawn agent_wait agent_stop agent_steer"
TASKS = "task_create task_list task_status task_result task_logs task_update task_cancel remind"
MAIL = "mailbox_send mailbox_reply mailbox_broadcast mailbox_read"
MEMORY = "memory_save memory_recall memory_forget read_shared_memory"
FILES = "fs_read fs_list fs_stat fs_write fs_edit fs_mkdir fs_delete send_file"
OTHERS = "exec web_fetch result_read restart think"

OURS = frozenset(f"{ASKING} {DELEGATION} {RUNS} {TASKS} {MAIL} {MEMORY} {FILES} {OTHERS}".split())
"""The tools that agentsup offers, and ``think``, which stands for a program's own to-do lists."""

READ = "read glob grep ls list listdir notebookread read_file read_many_files list_directory"
SEARCH = "search search_file_content codesearch"
THINK = "think todowrite todoread todo_write update_plan plan exitplanmode switch_mode"
EDIT = "edit multiedit notebookedit apply_patch patch replace str_replace"
WRITE = "write write_file create_file"
RUN = "bash execute exec shell run_shell_command exec_command local_shell powershell"
FETCH = "webfetch websearch fetch web_fetch google_web_search web_search"
REMOVE = "delete move"

OF_PROGRAMS = frozenset(f"{READ} {SEARCH} {THINK} {EDIT} {WRITE} {RUN} {FETCH} {REMOVE}".split())
"""The names of coding agents' own tools, in lower case, as far as they are known."""
