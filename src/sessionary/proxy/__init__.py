"""The recording proxy: passes requests to model APIs on byte for byte, and records them as sessions.

`server` speaks HTTP with clients and upstreams, `wire` parses it strictly. A `copy` of each exchange is made durable by
the `journal` before its last bytes are released. The `recorder` then reads it (`reading`) and appends what is new to
the log (`sessions`).
"""
