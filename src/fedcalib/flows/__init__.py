"""Sub-protocols that methods share; a method runs one with `yield from`."""
