"""The demo: sixteen airlines that will not pool their flights."""
