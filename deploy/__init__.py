"""How the service is run elsewhere: containers, charts, and a cluster of Ray."""
