"""What servers tell each other, and the clients that follow jobs over all servers."""
