"""The MCP server: what agents of other programs may read of the record, and with leave write."""
