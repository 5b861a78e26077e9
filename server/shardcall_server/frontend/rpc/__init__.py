"""What every RPC has: its call, deadline, status, threads and admission."""
