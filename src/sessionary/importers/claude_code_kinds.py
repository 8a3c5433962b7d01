"""Lines of Claude Code that are known and no part of a conversation."""

# Marks of the program for itself.
ASIDE = frozenset(
    {
        "agent-color",
        "agent-name",
        "agent-setting",
        "attribution-snapshot",
        "content-replacement",
        "file-history-delta",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "progress",
        "queue-operation",
        "speculation-accept",
        "tag",
        "teleported-from",
        "worktree-state",
    }
)
# `system` lines that say how something went.
NOTES = frozenset({"away_summary", "microcompact_boundary", "stop_hook_summary", "turn_duration"})
# Attachments that tell the model something beside what people say, by how their kind begins.
REMINDERS = (
    "agent_listing",
    "async_hook",
    "compact_file_reference",
    "critical_system_reminder",
    "date_change",
    "deferred_tools",
    "diagnostics",
    "directory",
    "edited_text_file",
    "file",
    "hook_",
    "invoked_skills",
    "mcp_",
    "nested_memory",
    "opened_file",
    "output_style",
    "plan_",
    "relevant_memories",
    "selected_lines",
    "skill_",
    "task_",
    "team_",
    "todo",
    "token_usage",
)
