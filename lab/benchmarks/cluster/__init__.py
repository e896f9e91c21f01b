"""Several replicas: a card that only keeps time, clients of replicas, and a simulation."""
