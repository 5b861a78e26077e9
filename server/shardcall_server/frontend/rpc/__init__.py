"""RPCs of the front end: deadlines, statuses, threads and admission."""
