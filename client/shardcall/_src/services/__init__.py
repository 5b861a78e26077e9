"""Arrays and profiles, by the services of the contract."""
