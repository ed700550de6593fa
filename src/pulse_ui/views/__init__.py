"""How facts are shown: charts, timelines, times and words. Pure, no I/O and nothing of HTTP."""
