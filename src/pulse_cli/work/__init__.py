"""`pulse worker`: finds an application, runs its handlers, starts it anew when it changes."""
