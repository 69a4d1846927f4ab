"""Sub-protocols that methods borrow with `yield from`."""
