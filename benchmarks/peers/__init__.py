"""The programs of the clients, each of which runs as a process of its own."""
