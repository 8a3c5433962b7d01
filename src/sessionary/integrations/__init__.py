"""Storage for agent SDKs: each module implements the storage protocol of one SDK.

Nothing is imported here. Each module loads its SDK, and names the extra if that is missing.
"""
