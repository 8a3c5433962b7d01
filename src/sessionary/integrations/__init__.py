"""Sessions for agents that others wrote: each module speaks the storage protocol of one SDK.

Nothing is imported here. A module that is used loads its SDK, and says which extra brings it.
"""
