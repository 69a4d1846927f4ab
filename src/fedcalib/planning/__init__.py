"""Planning a study before anybody is asked: how many clients, how much noise, how fine a table."""
