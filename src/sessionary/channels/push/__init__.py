"""Notifications of browsers by their push services: RFC 8030, encrypted by RFC 8291, signed by RFC 8292."""
