"""The MCP server: other programs' agents search and read sessions, and write if that is allowed."""
